"use strict";
// Code: a language label and colors, by a tokenizer that knows words, not grammars

const C_COMMENT = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, HASH_COMMENT = String.raw`(?<![\w$\\])#[^\n]*`;
const QUOTED = String.raw`"(?:\\[\s\S]|[^"\\\n])*"?|'(?:\\[\s\S]|[^'\\\n])*'?`;
const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z%]*\b`;
const C_WORDS = "auto break case char class const constexpr continue default delete do double else enum explicit export extern false final float for friend goto if inline int long mutable namespace new noexcept nullptr operator override private protected public register return short signed sizeof static struct switch template this throw true try catch typedef typename union unsigned using virtual void volatile while bool NULL";
const LANGUAGES = { // comments, strings, words; numbers are alike
  python: [HASH_COMMENT, String.raw`[rbfuRBFU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$))|[rbfuRBFU]{0,2}(?:${QUOTED})`, "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield"],
  javascript: [C_COMMENT, "`(?:\\\\[\\s\\S]|[^`\\\\])*`?|" + QUOTED, "abstract any as async await boolean break case catch class const continue debugger default delete do else enum export extends false finally for from function get if implements import in instanceof interface keyof let namespace never new null number of private protected public readonly return set static string super switch this throw true try type typeof undefined unknown var void while with yield"],
  c: [C_COMMENT + String.raw`|^[ \t]*#[ \t]*\w+`, String.raw`R"\((?:[\s\S]*?)\)"|` + QUOTED, C_WORDS],
  java: [C_COMMENT, String.raw`"""[\s\S]*?(?:"""|$)|` + QUOTED, "abstract assert boolean break byte case catch char class const continue default do double else enum extends false final finally float for if implements import instanceof int interface long native new null package private protected public record return sealed short static super switch synchronized this throw throws transient true try var void volatile while"],
  go: [C_COMMENT, "`[^`]*`?|" + QUOTED, "any bool break byte case chan const continue default defer else error fallthrough false float64 for func go goto if import int int64 interface map nil package range return rune select string struct switch true type uint var"],
  rust: [C_COMMENT, String.raw`r#"[\s\S]*?"#|b?"(?:\\[\s\S]|[^"\\])*"?|'(?:\\[^\n']+|[^'\\\n])'`, "as async await bool break char const continue crate dyn else enum extern f32 f64 false fn for i32 i64 if impl in let loop match mod move mut pub ref return self Self static str String struct super trait true type u8 u32 u64 unsafe use usize where while Some None Ok Err"],
  bash: [HASH_COMMENT, String.raw`"(?:\\[\s\S]|[^"\\])*"?|'[^']*'?`, "alias case cd do done echo elif else esac eval exec exit export false fi for function if in local read return set shift source sudo then trap true unset until while"],
  json: ["(?!)", String.raw`"(?:\\.|[^"\\\n])*"?`, "true false null"],
  sql: [String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, String.raw`'(?:''|[^'])*'?|"[^"\n]*"?`, "add all alter and as asc begin between bigint boolean by case char check column commit constraint create cross date default delete desc distinct drop else end exists false foreign from full group having if in index inner insert int integer into is join key left like limit not null numeric offset on or order outer primary references returning right rollback select set table text then true union unique update using values varchar view when where with"],
  css: [String.raw`\/\*[\s\S]*?(?:\*\/|$)`, QUOTED + String.raw`|#[\da-fA-F]{3,8}\b`, ""],
  html: [String.raw`<!--[\s\S]*?(?:-->|$)`, String.raw`(?<==\s{0,9})(?:"[^"]*"?|'[^']*'?)`, ""],
};
const WORDS_OF = { // what else is colored as a word
  css: String.raw`@[\w-]+|(?<![\w-])[\w-]{1,60}(?=\s{0,9}:[^:{};]{0,300}[;}])|!important`, html: String.raw`<\/?[a-zA-Z][\w:-]*|\/?>|<![a-zA-Z]+`, bash: String.raw`\$\{?\w+\}?`, json: "(?!)", python: String.raw`^[ \t]*@[\w.]+`,
};
const ALIASES = {
  py: "python", python3: "python", js: "javascript", jsx: "javascript", mjs: "javascript", ts: "javascript", tsx: "javascript", typescript: "javascript",
  "c++": "c", cpp: "c", cc: "c", cxx: "c", h: "c", hpp: "c", "objective-c": "c", csharp: "java", cs: "java", "c#": "java", kotlin: "java", golang: "go", rs: "rust",
  sh: "bash", shell: "bash", zsh: "bash", console: "bash", jsonc: "javascript", json5: "javascript", postgresql: "sql", mysql: "sql", sqlite: "sql", scss: "css", less: "css", xml: "html", svg: "html", vue: "html",
  yaml: "bash", yml: "bash", toml: "bash", dockerfile: "bash", makefile: "bash",
};
const MOST_COLORED = 100000;
const lexers = new Map();
function lexerOf(name) {
  if (!lexers.has(name)) {
    const [comment, string, words] = LANGUAGES[name], word = words ? `\\b(?:${words.replaceAll(" ", "|")})\\b` : "(?!)";
    const keyed = name === "json" ? String.raw`"(?:\\.|[^"\\\n])*"(?=\s*:)` : "(?!)";
    lexers.set(name, new RegExp(`(?<comment>${comment})|(?<key>${keyed})|(?<string>${string})|(?<word>${WORDS_OF[name] || "(?!)"}|${word})|(?<number>${NUMBER})`, name === "sql" ? "gim" : "gm"));
  }
  return lexers.get(name);
}
// The code as text and colored spans, which have all of its characters
function colored(code, language) {
  const name = Object.hasOwn(ALIASES, language) ? ALIASES[language] : language;
  if (!Object.hasOwn(LANGUAGES, name) || code.length > MOST_COLORED) return [code];
  const found = [];
  let at = 0;
  for (const match of code.matchAll(lexerOf(name))) {
    if (!match[0]) continue;
    const [kind] = Object.entries(match.groups).find(([, text]) => text !== undefined);
    if (match.index > at) found.push(code.slice(at, match.index));
    found.push(h("span", {class: "code-" + kind}, match[0]));
    at = match.index + match[0].length;
  }
  return [...found, code.slice(at)];
}
// A block of code with its language, its colors, and a button that copies it
function codeBlock(pre) {
  const inner = pre.querySelector("code") || pre, language = (inner.getAttribute("data-language") || "").toLowerCase(), code = pre.textContent;
  const button = h("button", {"aria-label": "Copy the code", onclick: () => copy(code, button)}, "Copy");
  inner.replaceChildren(...colored(code, language));
  pre.tabIndex = 0;
  return h("div", {class: "block"}, h("div", {class: "head"}, h("span", {class: "language"}, language), button), pre);
}
