"""Hard texts for tokenizers: scripts, marks, control tokens, code, runs and broken forms, from a seed."""

import random
from collections.abc import Sequence

COUNT = 3000

_SCRIPTS = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿßœšžđłőű",
    "αβγδεζηθικλμνξοπρστυφχψωάέήίόύώΑΒΓΔ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґАБВ",
    "אבגדהוזחטיכלמנסעפצקרשתםןףץך",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهويءآأؤإئىة",
    "अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह",
    "กขคงจฉชซญฎฏฐณดตถทธนบปผฝพฟภมยรลวศษสหอฮ",
    "你好世界中文汉字测试语言模型计算机科学技术的一是不了人我在有他这",
    "こんにちはありがとうカタカナテストァィゥェォッャュョ",
    "가나다라마바사아자차카타파하한국어안녕하세요",
    "აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ",
    "ႠႡႢꭰꭱꭲ𐐀𐐁𐐨𐐩ǅǈǋᾈᾘ",
)
_MARKS = "\u0300\u0301\u0302\u0303\u0308\u030a\u0323\u0327\u0328\u0344\u05b0\u064b\u0651\u093c\u094d\u0e33\u1161\u11a8"
_SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2009\u200b\u200d\u2028\u2029\u202f\u3000\ufeff"
_DIGITS = "0123456789٠١٢३४५６７８９½²³Ⅷ①𝟙"
_PUNCTUATION = ".,!?;:'\"’“”«»()[]{}<>/\\|@#$%^&*-_=+~`…—–•·、。，！？「」※€£¥₹±×÷≤∞√"
_EMOJI = ("😀", "👩‍👩‍👧‍👦", "👩🏽‍💻", "🇩🇪", "🇫", "🏳️‍🌈", "❤️", "☺", "1️⃣", "🧑🏿‍🦽", "\U000e0067", "🏴󠁧󠁢󠁥󠁮󠁧󠁿")
_BROKEN = (
    "e\u0301",
    "\u0301e",
    "q\u0307\u0323",
    "q\u0323\u0307",
    "\u1100\u1161\u11a8",
    "\u1112\u1161",
    "\u212b\u2126",
    "\ufb01\ufb03",
    "ſK",
    "\u0e40\u0e01\u0e33",
    "\x00\x01\x7f",
    "\ufffd\ufffe\uffff",
    "\u202etxet\u202c",
    "\U0010ffff\ue000",
    "\u0958\u0929",
    "İıŉǰ",
    "İ\u0307",
)
_CODE = (
    "def f(x):\n\treturn x ** 2  # 0x1F\n",
    "    for (int i = 0; i < n; ++i) {\r\n        a[i] += 1;\r\n    }\r\n",
    '{"a": [1, 2.5e-3, null], "b": "\\u00e9\\n"}',
    "<div class='x'>&nbsp;</div><!-- -->\n\n\n",
    "SELECT * FROM t WHERE a='b''c';--",
    "https://example.org/a?b=c&d=%20#e",
    "C:\\Users\\x\\file.txt",
    "\\frac{1}{2} $x^2$ \\\\ \n",
    "camelCase snake_case SCREAMING_CASE kebab-case XMLHttpRequest",
    '#!/bin/sh\nset -e\n\techo "$1"\n',
)
_WORDS = (
    "the",
    "The",
    "THE",
    " don't",
    " WE'RE",
    "I'll",
    "l’été",
    " you'd",
    "HE'S",
    "it's'",
    "'tis",
    "Straße",
    "naïve",
    "antidisestablishmentarianism",
    "l'avion",
    "1,234,567.89",
    "3.14159",
    "2024-01-31T23:59:59Z",
    "+49 (0)30",
    "e.g.",
    "…and",
)


def hard_texts(seed: int, controls: Sequence[str], count: int = COUNT) -> list[str]:
    """``count`` texts drawn from ``seed``; ``controls``: the tokenizer's added tokens, which stand in some of them."""
    rng = random.Random(seed)
    return ["", " ", "  ", "\n", *(_text(rng, controls) for _ in range(count - 4))]


def _text(rng: random.Random, controls: Sequence[str]) -> str:
    return "".join(_piece(rng, controls) for _ in range(rng.randint(1, 8)))


def _piece(rng: random.Random, controls: Sequence[str]) -> str:
    kind = rng.randrange(12)
    if kind <= 1:
        return _drawn(rng, rng.choice(_SCRIPTS), 9) + rng.choice(("", " ", ", "))
    if kind == 2:
        return "".join(letter + _drawn(rng, _MARKS, 2) for letter in _drawn(rng, rng.choice(_SCRIPTS), 4))
    if kind == 3:
        return _run(rng, _SPACES) if rng.random() < 0.5 else _drawn(rng, _SPACES, 6)
    if kind == 4:
        return _drawn(rng, _DIGITS, 12)
    if kind == 5:
        return _run(rng, _PUNCTUATION) if rng.random() < 0.3 else _drawn(rng, _PUNCTUATION, 6)
    if kind == 6:
        return rng.choice(_EMOJI)
    if kind == 7:
        return rng.choice(_BROKEN)
    if kind == 8:
        return rng.choice(_CODE)
    if kind == 9 and controls:
        return _control(rng, rng.choice(controls))
    if kind == 10:
        return _any(rng)
    return rng.choice(_WORDS) + rng.choice((" ", "", "\n"))


def _drawn(rng: random.Random, alphabet: str, most: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, most)))


def _run(rng: random.Random, alphabet: str) -> str:
    return rng.choice(alphabet) * rng.choice((2, 3, 4, 7, 8, 15, 16, 31, 64, 130))


def _control(rng: random.Random, token: str) -> str:
    """A control token whole, cut off, in another case or with spaces around."""
    return rng.choice((token, token, f" {token} ", token[:-1], token.upper(), f"{token}{token}", f"\n{token}\n"))


def _any(rng: random.Random) -> str:
    """Characters of any plane but surrogates."""
    points = (rng.randrange(0x110000) if rng.random() < 0.3 else rng.randrange(0x3000) for _ in range(5))
    return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)
