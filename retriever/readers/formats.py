"""The table of file formats: name endings and the reader of each. A reader is imported when it is first needed."""

from __future__ import annotations

Format = tuple[str, str]  # the name in `Document.format`, and "module:function" of the reader

_READERS: dict[str, tuple[str, str]] = {
    # format: (reader, endings)
    "text": (".plain_text.text:read_text", "txt text log nfo me"),
    "markdown": (".markup.markdown:read_markdown", "md markdown mdown mkd mdx qmd rmd"),
    "rst": (".markup.rst:read_rst", "rst rest"),
    "org": (".markup.org:read_org", "org"),
    "latex": (".markup.latex:read_latex", "tex latex ltx sty cls bib"),
    "asciidoc": (".markup.asciidoc:read_asciidoc", "adoc asciidoc asc"),
    "man": (".markup.man:read_man", "1 2 3 4 5 6 7 8 9 man mdoc roff"),
    "html": (".markup.html_text:read_html", "html htm xhtml xht"),
    "xml": (
        ".markup.xml_text:read_xml",
        "xml nxml rss atom rdf svg dita tei docbook dbk kml gpx plist fb2 xlf xliff tmx",
    ),
    "pdf": (".pdf.pdf:read_pdf", "pdf"),
    "docx": (".office.docx:read_docx", "docx docm dotx dotm"),
    "pptx": (".office.pptx:read_pptx", "pptx pptm ppsx ppsm potx potm"),
    "xlsx": (".office.xlsx:read_xlsx", "xlsx xlsm xltx xltm"),
    "xls": (".office.xlsx:read_xls", "xls xlsb"),
    "doc": (".office.binary.doc:read_doc", "doc dot"),
    "ppt": (".office.binary.ppt:read_ppt", "ppt pps"),
    "msg": (".office.binary.msg:read_msg", "msg"),
    "odt": (".office.odf:read_odf", "odt ott fodt"),
    "odp": (".office.odf:read_odf", "odp otp fodp odg fodg"),
    "ods": (".office.odf:read_odf", "ods ots fods"),
    "rtf": (".rtf:read_rtf", "rtf"),
    "epub": (".epub:read_epub", "epub"),
    "csv": (".plain_text.text:read_delimited", "csv psv"),
    "tsv": (".plain_text.text:read_delimited", "tsv tab"),
    "json": (".plain_text.text:read_json", "json geojson topojson json5 jsonc webmanifest har avsc"),
    "jsonl": (".plain_text.text:read_json_lines", "jsonl ndjson"),
    "sqlite": (".database:read_sqlite", "sqlite sqlite3 db db3"),
    "parquet": (".database:read_parquet", "parquet"),
    "notebook": (".notebook:read_notebook", "ipynb"),
    "email": (".containers.mail:read_mail", "eml mht mhtml"),
    "mailbox": (".containers.mail:read_mailbox", "mbox"),
    "subtitles": (".plain_text.text:read_subtitles", "srt vtt sub ass ssa"),
    "icalendar": (".plain_text.wrapped:read_records", "ics ical ifb vcs"),
    "vcard": (".plain_text.wrapped:read_records", "vcf vcard"),
    "properties": (".plain_text.text:read_properties", "properties"),
    "po": (".plain_text.wrapped:read_po", "po pot"),
    "zip": (".containers.archive:read_archive", "zip"),
    "tar": (".containers.archive:read_archive", "tar tgz tbz tbz2 txz"),
    "gzip": (".containers.archive:read_archive", "gz"),
    "bzip2": (".containers.archive:read_archive", "bz2"),
    "xz": (".containers.archive:read_archive", "xz"),
}  # fmt: skip

# The readers that return the text of a file line by line, as a person wrote it.
KEEP_LINES = (".plain_text.text:", *(f".markup.{name}:" for name in ("markdown", "rst", "org", "latex", "asciidoc")))

# The versions of readers that return other text than at first. A file that an earlier version read is read again.
# Calendars, contacts and .asc files were text, and .properties files were ini.
VERSIONS = {
    "docx": 2, "xlsx": 2, "pptx": 2, "ods": 2, "xml": 3, "pdf": 3, "epub": 3, "odt": 3, "odp": 3, "html": 3,
    "markdown": 2, "notebook": 2, "subtitles": 2, "po": 2, "text": 3, "latex": 2, "ini": 2,
    "man": 2, "email": 2, "mailbox": 2,
}  # fmt: skip

_LANGUAGES = {
    "python": "py pyi pyw pyx pxd", "javascript": "js mjs cjs jsx", "typescript": "ts tsx mts cts",
    "java": "java", "kotlin": "kt kts", "scala": "scala sc", "groovy": "groovy gradle", "c": "c h",
    "cpp": "cc cpp cxx hh hpp hxx ipp inl", "csharp": "cs", "fsharp": "fs fsi fsx", "go": "go", "rust": "rs",
    "swift": "swift", "objective-c": "m mm", "dart": "dart", "ruby": "rb rake gemspec", "php": "php phtml",
    "perl": "pl pm", "lua": "lua", "r": "r", "julia": "jl", "haskell": "hs lhs", "ocaml": "ml mli",
    "elixir": "ex exs", "erlang": "erl hrl", "clojure": "clj cljs cljc edn", "lisp": "lisp lsp el cl",
    "scheme": "scm ss rkt", "fortran": "f f77 f90 f95 f03 f08 for", "pascal": "pas pp dpr", "ada": "adb ads",
    "d": "d", "nim": "nim", "zig": "zig", "v": "v sv vh svh", "vhdl": "vhd vhdl", "assembly": "asm s",
    "cuda": "cu cuh", "opencl": "opencl", "glsl": "glsl vert frag comp hlsl wgsl metal", "sql": "sql psql ddl",
    "shell": "sh bash zsh fish ksh", "powershell": "ps1 psm1 psd1", "batch": "bat cmd", "awk": "awk",
    "tcl": "tcl", "vim": "vim", "css": "css scss sass less styl", "vue": "vue", "svelte": "svelte",
    "astro": "astro", "graphql": "graphql gql", "protobuf": "proto", "thrift": "thrift",
    "terraform": "tf tfvars hcl", "nix": "nix", "cmake": "cmake", "make": "mk mak", "bazel": "bzl bazel star",
    "prolog": "pro prolog", "solidity": "sol", "matlab": "matlab", "cobol": "cob cbl cpy", "basic": "bas vb vbs",
    "apl": "apl", "coq": "coq", "lean": "lean", "agda": "agda", "crystal": "cr", "diff": "diff patch",
    "yaml": "yaml yml", "toml": "toml", "ini": "ini cfg conf cnf env desktop service editorconfig",
    "jinja": "j2 jinja jinja2 tmpl",
    "template": "mustache hbs ejs erb haml pug slim liquid twig", "graphviz": "dot gv",
    "mermaid": "mmd", "makefile": "makefile", "dockerfile": "dockerfile containerfile",
    "xml": "opml wsdl xsd xsl xslt resx",  # XML with most of its text in attributes
}  # fmt: skip

# Formats of statements, records or rows: each line is complete in itself. Most XML is read as prose instead.
LINE_BY_LINE = (frozenset(_LANGUAGES) - {"xml"}) | frozenset(
    {"csv", "tsv", "json", "jsonl", "xlsx", "xls", "ods", "sqlite", "parquet", "icalendar", "vcard", "po", "properties"}
)

FORMATS: dict[str, Format] = {
    "." + ending: (name, reader) for name, (reader, endings) in _READERS.items() for ending in endings.split()
} | {
    "." + ending: (name, ".plain_text.text:read_code")
    for name, endings in _LANGUAGES.items()
    for ending in endings.split()
}

# Files that are known by their whole name, as the ending that they are read by.
NAMES: dict[str, str] = {
    "makefile": ".mk", "gnumakefile": ".mk", "dockerfile": ".dockerfile", "containerfile": ".dockerfile",
    "cmakelists.txt": ".cmake", "gemfile": ".rb", "rakefile": ".rb", "vagrantfile": ".rb", "podfile": ".rb",
    "jenkinsfile": ".groovy", "build": ".bzl", "workspace": ".bzl", ".bashrc": ".sh", ".profile": ".sh",
    ".zshrc": ".sh",
    ".bash_profile": ".sh", ".vimrc": ".vim", ".emacs": ".el", ".editorconfig": ".ini", ".gitconfig": ".ini",
    "pipfile": ".toml", "requirements.txt": ".ini", "justfile": ".mk",
}  # fmt: skip

# Endings of old Office formats: some of these files are RTF or HTML. The last three have no other reader.
OLD_OFFICE = frozenset({".doc", ".dot", ".ppt", ".pps", ".pot", ".msg", ".wps", ".pub", ".vsd"})
# Files of these endings are not opened: they hold no text.
WITHOUT_TEXT = frozenset(
    {
        ".png", ".pgm", ".ppm", ".pbm", ".pnm",
        ".jpg", ".jpeg", ".jpe", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".heic", ".heif", ".avif",
        ".ico", ".icns", ".psd", ".ai", ".eps", ".raw", ".cr2", ".nef", ".dng", ".xcf", ".jp2", ".mp3", ".wav",
        ".flac", ".ogg", ".oga", ".opus", ".m4a", ".aac", ".wma", ".aiff", ".mid", ".midi", ".mp4", ".m4v",
        ".mov", ".avi", ".mkv", ".webm", ".wmv", ".flv", ".mpg", ".mpeg", ".3gp", ".zst", ".lz4", ".7z", ".rar",
        ".jar", ".war", ".ear", ".apk", ".ipa",
        ".whl", ".egg", ".deb", ".rpm", ".dmg", ".iso", ".img", ".cab", ".exe", ".dll", ".so", ".dylib", ".a",
        ".o", ".obj", ".lib", ".pyc", ".pyo", ".pyd", ".class", ".wasm", ".bin",
        ".mdb", ".accdb", ".arrow", ".feather", ".orc", ".avro", ".npy", ".npz", ".h5",
        ".hdf5", ".pkl", ".pickle", ".pt", ".pth", ".onnx", ".safetensors", ".gguf", ".faiss", ".lance", ".ttf",
        ".otf", ".woff", ".woff2", ".eot", ".blend", ".fbx", ".glb", ".stl", ".dwg", ".shp", ".pages",
        ".numbers", ".mobi", ".azw", ".azw3", ".djvu", ".chm", ".one", ".pst", ".ost", ".msf", ".p12", ".pfx", ".der",
        ".swf"
    }
)  # fmt: skip
