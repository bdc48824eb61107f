// Print the definitions and comments of JavaScript files, by Babel: one JSON object a line for each path on standard input.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { parse } = createRequire(`${process.argv[2]}/`)("@babel/parser");
const FUNCTIONS = new Set(["FunctionExpression", "ArrowFunctionExpression", "ClassExpression"]);
const PLAIN = new Set(["module", "exports", "prototype", "this", "self", "window", "globalThis"]);

function namesOf(node, source) {
  const text = (part) => source.slice(part.start, part.end).replace(/\s+/g, " ");
  const isFunction = (value) => value && FUNCTIONS.has(value.type);
  switch (node.type) {
    case "FunctionDeclaration":
    case "ClassDeclaration":
      return node.id ? [node.id.name] : [];
    case "ClassMethod":
    case "ClassPrivateMethod":
    case "ObjectMethod":
      return [text(node.key)];
    case "ClassExpression":
      return node.id ? [node.id.name] : [];
    case "VariableDeclarator":
      return isFunction(node.init) ? [text(node.id)] : [];
    case "ObjectProperty":
    case "ClassProperty":
    case "ClassPrivateProperty":
      return isFunction(node.value) ? [text(node.key).replace(/^['"]|['"]$/g, "")] : [];
    case "AssignmentExpression":
      return isFunction(node.right) ? text(node.left).split(/[.\s]+/).filter((name) => !PLAIN.has(name)) : [];
  }
  return [];
}

function* definitions(root, source) {
  const waiting = [root];
  while (waiting.length) {
    const node = waiting.pop();
    const names = namesOf(node, source);
    if (names.length) yield { start: node.start, end: node.end, names };
    for (const [key, value] of Object.entries(node)) {
      if (key === "loc" || key.endsWith("omments")) continue;
      for (const child of Array.isArray(value) ? value : [value]) {
        if (child && typeof child.type === "string") waiting.push(child);
      }
    }
  }
}

for (const path of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const source = readFileSync(path, "utf8");
  let answer = null;
  try {
    const file = parse(source, { sourceType: "unambiguous", plugins: ["jsx"] });
    const comments = file.comments.map((comment) => [comment.start, comment.end]);
    answer = { definitions: [...definitions(file.program, source)], comments };
  } catch {}
  console.log(JSON.stringify(answer));
}
