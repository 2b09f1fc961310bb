"use strict";
// Math: TeX in a text as MathML. What is not known here throws, and its source is shown as code.

const MATHML = "http://www.w3.org/1998/Math/MathML", MOST_TEX = 3000, DEEPEST_TEX = 60;
function m(tag, attributes, ...children) {
  const element = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value != null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
const pairs = text => Object.fromEntries(text.trim().split(/\s+/).map(pair => pair.split(/:(?=.)/)));
const LETTERS = pairs(`alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ varkappa:ϰ lambda:λ mu:μ nu:ν xi:ξ omicron:ο pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω
  Gamma:Γ Delta:Δ Theta:Θ Lambda:Λ Xi:Ξ Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω infty:∞ partial:∂ nabla:∇ hbar:ℏ ell:ℓ Re:ℜ Im:ℑ aleph:ℵ beth:ℶ wp:℘ emptyset:∅ varnothing:∅ forall:∀ exists:∃ nexists:∄ top:⊤ bot:⊥ angle:∠ triangle:△ square:□ blacksquare:■ Box:□ Diamond:◇ imath:ı jmath:ȷ degree:° complement:∁ checkmark:✓ clubsuit:♣ diamondsuit:♢ heartsuit:♡ spadesuit:♠ dots:… ldots:… cdots:⋯ vdots:⋮ ddots:⋱ dotsc:… dotsb:⋯ hdots:… S:§ P:¶ pounds:£ copyright:© eth:ð digamma:ϝ flat:♭ natural:♮ sharp:♯`);
const OPERATORS = pairs(`pm:± mp:∓ times:× div:÷ cdot:⋅ ast:∗ star:⋆ circ:∘ bullet:∙ oplus:⊕ ominus:⊖ otimes:⊗ oslash:⊘ odot:⊙ wedge:∧ land:∧ vee:∨ lor:∨ neg:¬ lnot:¬ cap:∩ cup:∪ setminus:∖ smallsetminus:∖ sqcap:⊓ sqcup:⊔ uplus:⊎ amalg:⨿ dagger:† ddagger:‡ wr:≀ bowtie:⋈ ltimes:⋉ rtimes:⋊
  leq:≤ le:≤ geq:≥ ge:≥ neq:≠ ne:≠ ll:≪ gg:≫ lll:⋘ ggg:⋙ equiv:≡ sim:∼ simeq:≃ cong:≅ approx:≈ asymp:≍ doteq:≐ propto:∝ varpropto:∝ prec:≺ succ:≻ preceq:⪯ succeq:⪰ leqslant:⩽ geqslant:⩾ lesssim:≲ gtrsim:≳ triangleq:≜ coloneqq:≔ subset:⊂ supset:⊃ subseteq:⊆ supseteq:⊇ subsetneq:⊊ supsetneq:⊋ sqsubseteq:⊑ sqsupseteq:⊒ in:∈ ni:∋ notin:∉ vdash:⊢ dashv:⊣ models:⊨ vDash:⊨ perp:⟂ parallel:∥ nparallel:∦ mid:∣ nmid:∤ smile:⌣ frown:⌢ therefore:∴ because:∵ nleq:≰ ngeq:≱ nsubseteq:⊈ lt:< gt:> colon::
  to:→ rightarrow:→ leftarrow:← gets:← leftrightarrow:↔ Rightarrow:⇒ Leftarrow:⇐ Leftrightarrow:⇔ implies:⟹ impliedby:⟸ iff:⟺ longrightarrow:⟶ longleftarrow:⟵ longleftrightarrow:⟷ Longrightarrow:⟹ Longleftarrow:⟸ Longleftrightarrow:⟺ mapsto:↦ longmapsto:⟼ hookrightarrow:↪ hookleftarrow:↩ rightharpoonup:⇀ rightharpoondown:⇁ leftharpoonup:↼ leftharpoondown:↽ rightleftharpoons:⇌ uparrow:↑ downarrow:↓ updownarrow:↕ Uparrow:⇑ Downarrow:⇓ Updownarrow:⇕ nearrow:↗ searrow:↘ swarrow:↙ nwarrow:↖ rightsquigarrow:⇝ twoheadrightarrow:↠ nrightarrow:↛ leadsto:⇝`);
const LARGE = pairs("sum:∑ prod:∏ coprod:∐ bigcup:⋃ bigcap:⋂ bigvee:⋁ bigwedge:⋀ bigoplus:⨁ bigotimes:⨂ bigodot:⨀ biguplus:⨄ bigsqcup:⨆");
const INTEGRALS = pairs("int:∫ iint:∬ iiint:∭ oint:∮ oiint:∯ smallint:∫");
const NAMED = "arccos arcsin arctan arg cos cosh cot coth csc deg dim exp hom ker lg ln log sec sin sinh tan tanh".split(" ");
const NAMED_WITH_LIMITS = {...Object.fromEntries("det gcd inf lim max min Pr sup".split(" ").map(name => [name, name])), limsup: "lim sup", liminf: "lim inf", argmax: "arg max", argmin: "arg min", injlim: "inj lim", projlim: "proj lim"};
const FENCES = pairs("langle:⟨ rangle:⟩ lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉ vert:| Vert:‖ lvert:| rvert:| lVert:‖ rVert:‖ lbrace:{ rbrace:} lbrack:[ rbrack:] backslash:\\ lgroup:⟮ rgroup:⟯ uparrow:↑ downarrow:↓ updownarrow:↕ ulcorner:⌜ urcorner:⌝ llbracket:⟦ rrbracket:⟧");
const ACCENTS = {hat: "^", widehat: "^", check: "ˇ", tilde: "~", widetilde: "~", acute: "´", grave: "`", dot: "˙", ddot: "¨", dddot: "⃛", breve: "˘", bar: "¯", vec: "→", mathring: "˚", overline: "‾", overrightarrow: "→", overleftarrow: "←", overleftrightarrow: "↔", overbrace: "⏞", overparen: "⏜"};
const UNDERS = {underline: "_", underbrace: "⏟", underrightarrow: "→", underleftarrow: "←", underparen: "⏝"};
const STRETCHED = new Set("widehat widetilde overline overrightarrow overleftarrow overleftrightarrow overbrace overparen".split(" "));
const SPACES = {",": .167, thinspace: .167, ":": .222, ">": .222, medspace: .222, ";": .278, thickspace: .278, "!": -.167, negthinspace: -.167, " ": .25, quad: 1, qquad: 2, enspace: .5, "~": .25};
const FONTS = { // first capital, first small letter, first digit; and the letters that are elsewhere
  bold: [0x1d400, 0x1d41a, 0x1d7ce], bb: [0x1d538, 0x1d552, 0x1d7d8, pairs("C:ℂ H:ℍ N:ℕ P:ℙ Q:ℚ R:ℝ Z:ℤ")], cal: [0x1d49c, 0x1d4b6, 0, pairs("B:ℬ E:ℰ F:ℱ H:ℋ I:ℐ L:ℒ M:ℳ R:ℛ e:ℯ g:ℊ o:ℴ")],
  frak: [0x1d504, 0x1d51e, 0, pairs("C:ℭ H:ℌ I:ℑ R:ℜ Z:ℨ")], sans: [0x1d5a0, 0x1d5ba, 0x1d7e2], mono: [0x1d670, 0x1d68a, 0x1d7f6],
};
const FONT_COMMANDS = {mathbf: "bold", boldsymbol: "bold", bm: "bold", symbf: "bold", mathbb: "bb", mathcal: "cal", mathscr: "cal", mathfrak: "frak", mathsf: "sans", mathtt: "mono", mathrm: "upright", mathit: "italic", mathnormal: "italic", symup: "upright"};
const TEXTS = {text: "", textrm: "", textnormal: "", mbox: "", hbox: "", textup: "", textbf: "bold", textit: "slanted", emph: "slanted", texttt: "mono", textsf: ""};
const MATRICES = {matrix: ["", ""], smallmatrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], Bmatrix: ["{", "}"], vmatrix: ["|", "|"], Vmatrix: ["‖", "‖"], cases: ["{", ""], rcases: ["", "}"], dcases: ["{", ""], array: ["", ""],
  aligned: ["", ""], align: ["", ""], alignedat: null, split: ["", ""], gathered: ["", ""], gather: ["", ""], equation: ["", ""], eqnarray: ["", ""], multline: ["", ""]};
const SIZES = {big: 1.2, Big: 1.8, bigg: 2.4, Bigg: 3};

function fontOf(letter, font) {
  const [capital, small, digit, elsewhere] = FONTS[font];
  if (elsewhere && Object.hasOwn(elsewhere, letter)) return elsewhere[letter];
  const code = letter.charCodeAt(0), at = /[A-Z]/.test(letter) ? capital + code - 65 : /[a-z]/.test(letter) ? small + code - 97 : /\d/.test(letter) && digit ? digit + code - 48 : 0;
  return at ? String.fromCodePoint(at) : letter;
}
class TeXReader {
  constructor(tex, isDisplay, depth = 0) {
    this.tokens = tex.match(/\\operatorname\*|\\[a-zA-Z]+|\\[\s\S]|\d+(?:\.\d+)?|\s+|[\s\S]/gu) || [];
    this.at = 0; this.depth = depth; this.font = ""; this.isDisplay = isDisplay;
  }
  get next() { return this.tokens[this.at]; }
  skipSpace() { while (this.at < this.tokens.length && (!this.next.trim() || this.next === "%")) { if (this.next === "%") throw new Error("%"); this.at++; } }
  take(token) { this.skipSpace(); if (this.next !== token) return false; this.at++; return true; }
  need(token) { if (!this.take(token)) throw new Error(`${token} is missing`); }
  all() {
    const rows = this.rows("");
    if (this.at < this.tokens.length) throw new Error(this.next);
    return rows.length === 1 && rows[0].length === 1 ? rows[0][0] : tableOf(rows, {class: "aligned", displaystyle: "true"});
  }
  // Everything up to one of the ends, which is not taken
  row(ends) {
    const found = [], fontBefore = this.font, isDisplay = this.isDisplay;
    for (;;) {
      this.skipSpace();
      if (this.at >= this.tokens.length || ends.includes(this.next)) break;
      if (["}", "&", "\\\\", "\\right", "\\end", "\\middle"].includes(this.next)) throw new Error(this.next);
      const style = /^\\(display|text|script|scriptscript)style$/.exec(this.next);
      if (style) {
        this.at++;
        this.isDisplay = style[1] === "display";
        found.push(m("mstyle", {displaystyle: this.isDisplay, scriptlevel: {script: 1, scriptscript: 2}[style[1]] ?? 0}, ...this.row(ends).childNodes));
        break;
      }
      const font = /^\\(rm|bf|it|cal|sf|tt)$/.exec(this.next);
      if (font) { this.at++; this.font = FONT_COMMANDS[`math${font[1]}`]; continue; }
      if (/^\\(over|choose|atop)$/.test(this.next)) {
        const line = this.next === "\\over" ? null : "0";
        const isBinomial = this.tokens[this.at++] === "\\choose", fraction = m("mfrac", {linethickness: line}, m("mrow", {}, ...found.splice(0)), this.row(ends));
        found.push(isBinomial ? fenced("(", ")", fraction) : fraction);
        break;
      }
      const piece = this.scripted(), before = found.at(-1);
      if (piece.isNamed && before && before.localName !== "mo" && before.localName !== "mspace") found.push(space(.167));
      found.push(piece);
      this.skipSpace();
      if (piece.isNamed && /^(\\(?!left|right|end|middle|[^a-zA-Z])|[\p{L}\d])/u.test(this.next || "")) found.push(space(.167));
    }
    this.font = fontBefore; this.isDisplay = isDisplay;
    return m("mrow", {}, ...found);
  }
  // An atom with its scripts: under and over it where it takes limits
  scripted() {
    const base = this.next === "^" || this.next === "_" || this.next === "'" ? m("mrow") : this.atom();
    let limits = base.hasLimits, below = null, above = null, primes = "";
    for (;;) {
      this.skipSpace();
      if (this.take("\\limits")) limits = true;
      else if (this.take("\\nolimits")) limits = false;
      else if (this.take("'")) primes += "′";
      else if (this.next === "_" && !below) { this.at++; below = this.argument(); }
      else if (this.next === "^" && !above) { this.at++; above = this.argument(); }
      else if (this.next === "_" || this.next === "^") throw new Error("two scripts");
      else break;
    }
    if (primes) above = m("mrow", {}, m("mo", {lspace: "0", rspace: "0"}, primes), ...(above ? [above] : []));
    if (!below && !above) return base;
    const [one, other, both] = limits ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    const found = below && above ? m(both, {}, base, below, above) : below ? m(one, {}, base, below) : m(other, {}, base, above);
    found.isNamed = base.isNamed;
    return found;
  }
  argument() {
    this.skipSpace();
    if (this.at >= this.tokens.length) throw new Error("an argument is missing");
    if (this.next === "{") return this.group();
    if (/^\d\d/.test(this.next)) { // x^10 is x^1 0
      const digits = this.next;
      this.tokens[this.at] = digits.slice(1);
      return m("mn", {}, digits[0]);
    }
    return this.atom();
  }
  group() {
    this.need("{");
    const row = this.row(["}"]);
    this.need("}");
    return row.childNodes.length === 1 && !row.firstChild.hasLimits ? row.firstChild : row;
  }
  // The source between braces, for texts and names
  source() {
    this.need("{");
    let text = "", depth = 1;
    for (; this.at < this.tokens.length; this.at++) {
      if (this.next === "{") depth++;
      if (this.next === "}" && --depth === 0) { this.at++; return text; }
      text += this.next;
    }
    throw new Error("} is missing");
  }
  text() { return plainText(this.source()); }
  // A text, and the formulas in it
  mixedText(kind) {
    const parts = this.source().split(/(?<!\\)\$((?:\\.|[^$\\])+)\$/), texts = parts.map((part, at) => at % 2 ? new TeXReader(part, false, this.depth).all() : part && m("mtext", {class: kind || null}, plainText(part))).filter(Boolean);
    return texts.length === 1 ? texts[0] : m("mrow", {}, ...texts);
  }
  fence() {
    this.skipSpace();
    const token = this.tokens[this.at++] || "";
    if (token === ".") return "";
    if (/^[()[\]|/<>]$/.test(token)) return {"<": "⟨", ">": "⟩"}[token] || token;
    if (token === "\\{" || token === "\\}") return token[1];
    if (token === "\\|") return "‖";
    if (Object.hasOwn(FENCES, token.slice(1)) && token[0] === "\\") return FENCES[token.slice(1)];
    throw new Error(token);
  }
  atom() {
    if (++this.depth > DEEPEST_TEX) throw new Error("too deep");
    const found = this.plainAtom();
    this.depth--;
    return found;
  }
  plainAtom() {
    this.skipSpace();
    const token = this.tokens[this.at];
    if (token === undefined || ["^", "_", "&", "}", "#", "$"].includes(token)) throw new Error(token || "end");
    if (token === "{") return m("mrow", {}, this.group());
    this.at++;
    if (token[0] === "\\") return this.command(token.slice(1));
    if (/^\d/.test(token)) return m("mn", {}, FONTS[this.font] ? [...token].map(digit => fontOf(digit, this.font)).join("") : token);
    if (/^\p{L}$/u.test(token)) return this.letter(token);
    if (token === "~") return space(SPACES["~"]);
    if ("|([])/".includes(token)) return m("mo", {stretchy: "false"}, token);
    if (token === "-") return m("mo", {}, "−");
    if (token === "*") return m("mo", {}, "∗");
    return m("mo", {}, token);
  }
  letter(letter) {
    if (this.font === "upright") return m("mi", {mathvariant: "normal"}, letter);
    return FONTS[this.font] ? m("mi", {mathvariant: "normal"}, fontOf(letter, this.font)) : m("mi", {}, letter);
  }
  command(name) {
    const has = table => Object.hasOwn(table, name);
    if (has(LETTERS)) return m("mi", /^[A-Z]|^(infty|emptyset|dots|.dots|vdots|forall|exists)/.test(name) || this.font === "upright" ? {mathvariant: "normal"} : {}, LETTERS[name]);
    if (has(LARGE)) return withLimits(m("mo", {movablelimits: "true"}, LARGE[name]));
    if (has(INTEGRALS)) return m("mo", {}, INTEGRALS[name]);
    if (has(OPERATORS)) return m("mo", {stretchy: "false"}, OPERATORS[name]);
    if (has(FENCES)) return m("mo", {stretchy: "false"}, FENCES[name]);
    if (NAMED.includes(name)) return named(name);
    if (has(NAMED_WITH_LIMITS)) return withLimits(m("mo", {movablelimits: "true", form: "prefix", lspace: "0", rspace: ".167em"}, NAMED_WITH_LIMITS[name].replace(" ", "\u00a0")));
    if (has(SPACES)) return space(SPACES[name]);
    if (/^[{}%$#&_]$/.test(name)) return m("mo", {stretchy: "false"}, name);
    if (name === "|") return m("mo", {stretchy: "false"}, "‖");
    if (has(ACCENTS)) return this.over(ACCENTS[name], STRETCHED.has(name), name === "overbrace");
    if (has(UNDERS)) { const base = this.argument(); return markLimits(m("munder", {accentunder: "true"}, base, m("mo", {stretchy: "true"}, UNDERS[name])), name === "underbrace"); }
    if (has(FONT_COMMANDS)) return this.inFont(FONT_COMMANDS[name]);
    if (has(TEXTS)) return this.mixedText(TEXTS[name]);
    if (Object.hasOwn(COMMANDS, name)) return COMMANDS[name](this);
    const size = /^(big|Big|bigg|Bigg)[lrm]?$/.exec(name);
    if (size) { const fence = this.fence(); return m("mo", {stretchy: "true", symmetric: "true", minsize: `${SIZES[size[1]]}em`, maxsize: `${SIZES[size[1]]}em`}, fence); }
    throw new Error("\\" + name);
  }
  over(mark, isStretched, takesLimits) { return markLimits(m("mover", {accent: takesLimits ? null : "true"}, this.argument(), m("mo", {stretchy: String(isStretched)}, mark)), takesLimits); }
  inFont(font) {
    const before = this.font;
    this.font = font;
    const found = this.argument();
    this.font = before;
    return found;
  }
  fraction(style) {
    const top = this.argument(), bottom = this.argument(), fraction = m("mfrac", {}, top, bottom);
    return style ? m("mstyle", {displaystyle: style === "d", scriptlevel: 0}, fraction) : fraction;
  }
  root() {
    this.skipSpace();
    let degree = null;
    if (this.take("[")) { degree = this.row(["]"]); this.need("]"); }
    const base = this.argument();
    return degree ? m("mroot", {}, base, degree) : m("msqrt", {}, base);
  }
  leftRight() {
    const parts = [m("mo", {fence: "true", form: "prefix"}, this.fence())];
    for (;;) {
      parts.push(...this.row(["\\right", "\\middle"]).childNodes);
      if (this.take("\\middle")) { parts.push(m("mo", {stretchy: "true", symmetric: "true"}, this.fence())); continue; }
      this.need("\\right");
      parts.push(m("mo", {fence: "true", form: "postfix"}, this.fence()));
      return m("mrow", {}, ...parts);
    }
  }
  environment() {
    const full = this.source(), name = full.replace(/\*$/, "");
    if (!Object.hasOwn(MATRICES, name) || !MATRICES[name]) throw new Error(full);
    const columns = name === "array" ? this.source().replace(/[^lcr]/g, "") : "", rows = this.rows("\\end");
    this.need("\\end");
    if (this.source() !== full) throw new Error(`\\end{${full}} is missing`);
    const isEquation = /^(aligned|align|split|eqnarray|gathered|gather|equation|multline)$/.test(name), kind = /^(aligned|align|split)$/.test(name) ? "aligned" : /cases$/.test(name) ? "cases" : null;
    const table = tableOf(rows, {class: kind, displaystyle: isEquation || name === "dcases" ? "true" : null}, columns);
    return fenced(...MATRICES[name], name === "smallmatrix" ? m("mstyle", {scriptlevel: 1}, table) : table);
  }
  rows(end) {
    const rows = [[]];
    for (;;) {
      while (this.take("\\hline")) { /* a line, which the table has not */ }
      rows.at(-1).push(this.row(["&", "\\\\", end]));
      if (this.take("&")) continue;
      if (this.take("\\\\")) {
        if (this.next === "[") { while (this.at < this.tokens.length && this.next !== "]") this.at++; this.need("]"); }
        rows.push([]);
        continue;
      }
      const last = rows.at(-1);
      if (rows.length > 1 && last.length === 1 && !last[0].childNodes.length) rows.pop();
      return rows;
    }
  }
}
function plainText(source) {
  const text = source.replace(/\\[%&#_{}$ ]/g, "").includes("\\") || /(?<!\\)\$/.test(source) ? null : source.replace(/\\([%&#_{}$ ])/g, "$1").replaceAll("~", " ");
  if (text === null) throw new Error("commands in a text");
  return text.replace(/\s+/g, "\u00a0");
}
const withLimits = element => markLimits(element, true);
function markLimits(element, takesLimits) { element.hasLimits = takesLimits; return element; }
const space = width => m("mspace", {width: `${width}em`});
function named(name) { const element = m("mi", {mathvariant: "normal"}, name); element.isNamed = true; return element; }
const tableOf = (rows, attributes, columns = "") => m("mtable", attributes, ...rows.map(row => m("mtr", {}, ...row.map((cell, at) => m("mtd", {class: {l: "left", r: "right"}[columns[at]]}, cell)))));
const fenced = (left, right, inner) => m("mrow", {}, ...(left ? [m("mo", {fence: "true", form: "prefix"}, left)] : []), inner, ...(right ? [m("mo", {fence: "true", form: "postfix"}, right)] : []));
const COMMANDS = {
  frac: reader => reader.fraction(), dfrac: reader => reader.fraction("d"), tfrac: reader => reader.fraction("t"), cfrac: reader => reader.fraction("d"),
  binom: reader => fenced("(", ")", m("mfrac", {linethickness: "0"}, reader.argument(), reader.argument())), dbinom: reader => COMMANDS.binom(reader), tbinom: reader => COMMANDS.binom(reader),
  sqrt: reader => reader.root(), left: reader => reader.leftRight(), begin: reader => reader.environment(),
  operatorname: reader => named(reader.text()), "operatorname*": reader => withLimits(m("mo", {movablelimits: "true", form: "prefix", lspace: "0", rspace: ".167em"}, reader.text())),
  overset: reader => { const above = reader.argument(); return m("mover", {}, reader.argument(), above); }, stackrel: reader => COMMANDS.overset(reader),
  underset: reader => { const below = reader.argument(); return m("munder", {}, reader.argument(), below); },
  xrightarrow: reader => m("mover", {}, m("mo", {stretchy: "true"}, "→"), reader.argument()), xleftarrow: reader => m("mover", {}, m("mo", {stretchy: "true"}, "←"), reader.argument()),
  substack: reader => { reader.need("{"); const rows = reader.rows("}"); reader.need("}"); return tableOf(rows, {}); },
  hspace: reader => { const width = /^-?\d*\.?\d+(em|ex|pt|cm|mm)$/.exec(reader.source().trim()); if (!width) throw new Error("\\hspace"); return m("mspace", {width: width[0]}); },
  mathop: reader => withLimits(m("mrow", {}, reader.argument())), cdotp: () => m("mo", {}, "⋅"),
  boxed: reader => m("mrow", {class: "boxed"}, reader.argument()), phantom: reader => m("mphantom", {}, reader.argument()),
  pmod: reader => m("mrow", {}, space(.444), m("mo", {stretchy: "false"}, "("), m("mi", {}, "mod"), space(.333), reader.argument(), m("mo", {stretchy: "false"}, ")")),
  bmod: () => m("mo", {lspace: ".22em", rspace: ".22em"}, "mod"), mod: () => m("mo", {lspace: "1em", rspace: ".33em"}, "mod"),
  not: reader => { const only = reader.atom(); if (only.localName !== "mo" || only.childNodes.length !== 1) throw new Error("\\not"); return m("mo", {}, only.textContent + "\u0338"); },
  prime: () => m("mo", {}, "′"), tag: reader => m("mrow", {}, space(2), m("mtext", {}, `(${reader.text()})`)), nonumber: () => m("mrow"), notag: () => m("mrow"), displaylimits: () => m("mrow"),
};
// MathML of TeX, or its source as code
function mathOf(source, tex, isDisplay) {
  try {
    if (tex.length > MOST_TEX) throw new Error("too long");
    return h("span", {class: isDisplay ? "math block-math" : "math"}, m("math", {display: isDisplay ? "block" : null}, new TeXReader(tex, isDisplay).all()));
  } catch { return h("code", {class: "tex"}, source); }
}

// Finding it: marks of the private use area stand for math while the server renders the markdown

const OPEN = "\ue000", CLOSE = "\ue001";
const SPANS = /(?<skip>(?<!`)(?<ticks>`+)(?!`)[\s\S]*?(?<!`)\k<ticks>(?!`)|^[ \t]*(?<fence>`{3,}|~{3,})[\s\S]*?(?:^[ \t]*\k<fence>|(?![\s\S]))|\]\([^)\s]*\)|https?:\/\/[^\s<>]+|\\[$`])|\$\$(?<block>(?:\\text\{[^{}]{0,300}\}|\\(?!text\{[^{}]{0,300}\})[\s\S]|[^$\\]){1,3000}?)\$\$|\\\[(?<bracket>[\s\S]{1,3000}?)\\\]|\\\((?<paren>[\s\S]{1,3000}?)\\\)|(?<![\w$\\])\$(?<inline>(?=[^\s$])(?:\\text\{[^{}]{0,300}\}|\\(?!text\{[^{}]{0,300}\})[\s\S]|[^$\\\n]|\n(?!\s*\n))*?(?<!\s))\$(?!\$|(?!(?:th|st|nd|rd|s)\b)\w)|(?<environment>\\begin\{(?<name>equation|align|gather|multline|eqnarray)\*?\}[\s\S]{1,3000}?\\end\{\k<name>\*?\})/gm;
// $5 and $6 are prices: a number that is followed by words
const isPrice = tex => /^[\d.,]+\s*[A-Za-z]*\s+[A-Za-z]{2,}/.test(tex) || /^[\d.,]+[^\\^_=+*/(){}]*[A-Za-z]{3,}/.test(tex);
function withoutMath(text) {
  if (!/[$\\]/.test(text) || text.includes(OPEN) || text.includes(CLOSE)) return [text, []];
  const found = [];
  const marked = text.replace(SPANS, (...match) => {
    const groups = match.at(-1), source = match[0], tex = groups.block ?? groups.bracket ?? groups.paren ?? groups.inline ?? groups.environment;
    if (groups.skip !== undefined || !tex.trim() || groups.inline !== undefined && isPrice(tex) || /\n\s*\n/.test(tex)) return source;
    found.push({source, tex, isDisplay: groups.paren === undefined && groups.inline === undefined});
    return OPEN + (found.length - 1) + CLOSE;
  });
  return [marked, found];
}
// Puts the math in the places of its marks; in code it stays as it was written
function putMath(part, found) {
  if (!found.length) return;
  const walker = document.createTreeWalker(part, NodeFilter.SHOW_TEXT), texts = [];
  while (walker.nextNode()) if (walker.currentNode.data.includes(OPEN)) texts.push(walker.currentNode);
  for (const text of texts) {
    const isCode = text.parentElement.closest("code");
    text.replaceWith(...text.data.split(/\ue000(\d+)\ue001/).map((piece, at) => {
      if (at % 2 === 0) return piece;
      const {source, tex, isDisplay} = found[piece];
      return isCode ? source : mathOf(source, tex, isDisplay);
    }));
  }
}
