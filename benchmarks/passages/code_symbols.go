// Print the definitions and comments of Go files, by go/parser: one JSON object a line for each path on standard input.
package main

import (
	"bufio"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
)

type definition struct {
	Start int      `json:"start"`
	End   int      `json:"end"`
	Path  []string `json:"names"`
}

func receiver(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

func main() {
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, lines.Text(), nil, parser.ParseComments)
		if err != nil {
			out.Encode(nil)
			continue
		}
		at := func(p token.Pos) int { return set.Position(p).Offset }
		definitions, comments := []definition{}, [][2]int{}
		ast.Inspect(file, func(n ast.Node) bool {
			switch d := n.(type) {
			case *ast.FuncDecl:
				names := []string{d.Name.Name}
				if d.Recv != nil && len(d.Recv.List) > 0 {
					names = []string{receiver(d.Recv.List[0].Type), d.Name.Name}
				}
				definitions = append(definitions, definition{at(d.Pos()), at(d.End()), names})
			case *ast.GenDecl:
				if d.Tok == token.TYPE && !d.Lparen.IsValid() && len(d.Specs) > 0 {
					s := d.Specs[0].(*ast.TypeSpec)
					definitions = append(definitions, definition{at(d.Pos()), at(d.End()), []string{s.Name.Name}})
				} else if d.Tok == token.TYPE {
					for _, s := range d.Specs {
						n := s.(*ast.TypeSpec).Name.Name
						definitions = append(definitions, definition{at(s.Pos()), at(s.End()), []string{n}})
					}
				}
			}
			return true
		})
		for _, group := range file.Comments {
			comments = append(comments, [2]int{at(group.Pos()), at(group.End())})
		}
		out.Encode(map[string]any{"definitions": definitions, "comments": comments})
	}
}
