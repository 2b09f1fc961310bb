"""Give lower-cased children's stories their capital letters back, by rule.

The public TinyStories sample this model is trained on is lower-cased. People read stories with capitals, so
this module writes them back: at sentence starts, at the start of speech, for "I", for titles and holidays,
and for names. Names are not listed by hand. They are read from the text itself ("a girl named lily", "his
name was max"), and a word that is also an ordinary word ("spot", "bear") counts as a name only in the stories
that use it as one.

    python restore_case.py --data lower.txt --out cased.txt    # write the stories, two blank lines between
    python restore_case.py --data lower.txt --check cased.txt  # how often the rule agrees with real capitals

Only the standard library is needed. `restore_case` is a pure function of one story and a set of names.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Set
from pathlib import Path

# UTF-8 that was once read as Windows-1252 (and then lower-cased): curly quotes, dashes, dots, accents.
MOJIBAKE = {
    "â€œ": '"', "â€™": "'", "â€˜": "'", "â€“": "-", "â€”": "-", "â€¦": "...", "â€": '"',
    "ã¡": "a", "ã©": "e", "ã±": "n", "ã³": "o", "â«": '"', "â»": '"', "â¡": "",
    "“": '"', "”": '"', "’": "'", "‘": "'", "–": "-", "—": "-", "…": "...",
}  # fmt: skip

WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
OPENING = re.compile(r"(once|one|there (once )?(was|were|lived)|in a|it was|long ago)\b")


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


DETERMINERS = _words(
    "a an the this that these those his her its their my your our some any no every each another other "
    "one two three many more new old big little small tiny good best nice kind brave wise silly poor dear "
    "pretty red blue green brown black white yellow pink happy sad friendly funny mean scary lonely "
    "hungry grumpy beautiful"
)
FAMILY = _words("mom dad mommy daddy mama papa mummy mum mumma momma grandma grandpa granny nana")
TITLES = _words("mr mrs ms dr miss santa aunt uncle princess prince king queen captain")
ALWAYS = _words(
    "monday tuesday wednesday thursday friday saturday sunday january february april june july august "
    "september october november december christmas halloween easter thanksgiving english french spanish "
    "american africa america england paris london mr mrs ms dr"
)
NOT_NAMES = _words(
    "a an the it he she they him her them his their i you we me us out to for after and but in on at with "
    "by of from off up down over back upon like so very all is was be not that this what which who "
    "because when just as if then mom dad mommy daddy mama papa mummy mum grandma grandpa granny everyone "
    "everybody someone may"
)
LETTERS = {"ok": "OK", "tv": "TV"}
SPEECH = _words(
    "said says say asked asks replied cried shouted answered yelled exclaimed whispered called screamed "
    "explained added begged squeaked growled roared sang wondered responded"
)
# What follows a name that starts a sentence: "spot barked", "bear and rabbit", "lily's mom".
AFTER_A_NAME = SPEECH | _words(
    "was is had has and thought laughed barked saw went ran felt looked smiled loved liked wanted nodded "
    "could didn't did took found played decided tried knew started came got jumped opened picked agreed "
    "walked thanked hugged likes"
)
NAMING = re.compile(r"\b(?:named|called|name (?:is|was)|names (?:are|were)) ([a-z]+)(?:(?:,? and| or) ([a-z]+))?")
SPEAKER = re.compile(r"[,.!?]\" (?:said|asked|replied|cried|shouted|answered|exclaimed|yelled) ([a-z]+)(?=[.,\n])")
# "Called loudly" names nobody; "called billy" does.
ADVERB = re.compile(r"sadly|early|.{4,}ly|again|back|loud")
ANY_WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)*")
CHECK_BREAK = re.compile(r"\n\n(?=once|one day, a )")  # the cased sample has blank lines between stories, too
AFTER_TITLE = re.compile(r"\b(mr|mrs|ms|dr)\.? $")
BARE_SUBJECT = re.compile(r"(?:^|[.!?\"] |\n)\"?([a-z]+)(?:'s)? ([a-z']+)")


def repair(text: str) -> str:
    """Undo the broken encoding and use plain ASCII quotes and dashes."""
    for broken, plain in MOJIBAKE.items():
        text = text.replace(broken, plain)
    return re.sub(r"[ \t]+\n", "\n", re.sub(r"[ \t]+", " ", text)).encode("ascii", "ignore").decode()


def split_stories(text: str) -> list[str]:
    """Split repaired text into stories.

    A single line break separates stories and a blank line separates paragraphs; but a few stories also use a
    single break between paragraphs, so a short block that does not open like a story, or that follows a mere
    opening, continues the one before it.
    """
    stories: list[str] = []
    for block in re.split(r"(?<!\n)\n(?!\n)", text):
        block = re.sub(r"\n{2,}", "\n\n", block.strip())
        if not block:
            continue
        fragment = len(block) < 300 and not OPENING.match(block)
        unfinished = bool(stories) and len(stories[-1]) < 250 and not block.startswith("once")
        if stories and (fragment or unfinished or block.startswith('"')):
            stories[-1] += "\n\n" + block
        else:
            stories.append(block)
    return stories


def _before(text: str, at: int) -> list[str]:
    """The words just before position `at`, nearest first, back to the last punctuation or line break."""
    found = re.search(r"(?:[a-z']+ )*$", text[max(0, at - 30) : at])
    return found[0].split()[::-1] if found else []


def _is_ordinary(before: list[str]) -> bool:
    """Whether the words before a word make it a common noun: "a spot", "a quiet spot", "lily's bear"."""
    near, far = [*before, "", ""][:2]
    return near in DETERMINERS or near.endswith("'s") or far in ("a", "an", "the")


def _named_in(story: str) -> set[str]:
    """Words that the story itself introduces as names: "a dog named spot", '"yes," said spot.'."""
    found = {name for pair in NAMING.findall(story) for name in pair} | set(SPEAKER.findall(story))
    return {name for name in found - NOT_NAMES if name and not ADVERB.fullmatch(name)}


def find_names(stories: Iterable[str], least: int = 2) -> frozenset[str]:
    """Words that are names wherever they stand: introduced `least` times as a name, rarely after "the"."""
    introduced: Counter[str] = Counter()
    total: Counter[str] = Counter()
    ordinary: Counter[str] = Counter()
    subject: Counter[str] = Counter()
    for story in stories:
        introduced.update(_named_in(story))
        subject.update(name for name, verb in BARE_SUBJECT.findall(story) if verb in AFTER_A_NAME)
        for word in WORD.finditer(story):
            base = word[0].removesuffix("'s")
            total[base] += 1
            ordinary[base] += _is_ordinary(_before(story, word.start()))
    return frozenset(
        w for w, n in introduced.items()
        if n >= least and ordinary[w] <= 0.2 * total[w] and subject[w] >= 0.08 * total[w]
    )  # fmt: skip


def _local_names(story: str, names: Set[str]) -> set[str]:
    """Ordinary words that this one story uses as names: introduced as such, or a bare singular subject."""
    local = _named_in(story)
    for word, verb in BARE_SUBJECT.findall(story):
        if verb in SPEECH and word not in NOT_NAMES and word not in DETERMINERS:
            local.add(word)
    return local - names


def restore_case(story: str, names: Set[str] = frozenset()) -> str:
    """Write one lower-cased story with capital letters. `names` are words that are always names."""
    local = _local_names(story, names)

    def cased(match: re.Match[str]) -> str:
        word, at = match[0], match.start()
        base = re.sub(r"'(s|ll|d|m|ve|re)$", "", word)
        if base in LETTERS:
            return LETTERS[base]
        if base == "i" or base in names or base in ALWAYS or _starts_sentence(story, at):
            return word.capitalize()
        before = _before(story, at)
        if base in FAMILY and before[:1] == ["and"] and set(before[1:2]) & FAMILY:
            before = before[2:]  # "his mom and dad": what holds for the one holds for the other
        after = re.match(r" ([a-z]+)", story[match.end() :])
        titled = base in TITLES and after is not None and after[1] in names
        named = (base in FAMILY or base in local) and not _is_ordinary(before)
        addressed = AFTER_TITLE.search(story[max(0, at - 6) : at]) is not None  # "mr. fox"
        return word.capitalize() if titled or named or addressed else word

    return WORD.sub(cased, story)


def _starts_sentence(story: str, at: int) -> bool:
    """Whether the word at `at` opens a paragraph, a sentence, or somebody's speech."""
    lead = story[max(0, at - 24) : at]
    if not lead.strip() or lead.endswith("\n"):
        return True
    if opening := re.search(r"(\S*)(\s)[\"']$", lead) or re.fullmatch(r"()()[\"']", lead):
        # Speech follows a comma or a verb of saying; a quoted single word ('the word "hi"') keeps its case.
        speech = opening[2] == "\n" or not opening[1].isalpha() or opening[1] in SPEECH
        return speech or not re.match(r"[a-z]+[\"']", story[at:])
    if AFTER_TITLE.search(lead) or lead.endswith("... "):
        return False
    if re.search(r"[!?]['\"] $", lead):
        # '"why?" she asked.' goes on; '"why?" She smiled.' and '"why?" She said, "..."' are new sentences.
        clause = re.split(r"[.,!?\"\n]| and ", story[at : at + 60])[0]
        speaks = not SPEECH.isdisjoint(clause.split()[:4])
        return not speaks or story.startswith((', "', ': "'), at + len(clause))
    return bool(re.search(r"[.!?]['\"]? $", lead))


def agreement(truth: str, names: Set[str]) -> dict[str, float]:
    """Lower-case a text, restore it, and compare each word's first letter with the original."""
    ours = "\n\n".join(restore_case(story, names) for story in CHECK_BREAK.split(truth.lower()))
    initials = [[word[0].isupper() for word in ANY_WORD.findall(text)] for text in (truth, ours)]
    pairs = list(zip(*initials, strict=True))
    capitals = sum(true and restored for true, restored in pairs)
    return {
        "words": len(pairs),
        "correct": sum(true == restored for true, restored in pairs) / len(pairs),
        "precision": capitals / max(1, sum(restored for _, restored in pairs)),
        "recall": capitals / max(1, sum(true for true, _ in pairs)),
    }


def main() -> None:
    """Restore a file, or measure the rule against a cased one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="lower-cased stories to read names from")
    parser.add_argument("--out", type=Path, help="write the stories with capitals here")
    parser.add_argument("--check", type=Path, help="stories with real capitals to compare the rule with")
    flags = parser.parse_args()
    stories = split_stories(repair(flags.data.read_text(encoding="utf-8")))
    names = find_names(stories)
    print(f"{len(stories)} stories, {len(names)} names")
    if flags.out:
        flags.out.write_text("\n\n\n".join(restore_case(story, names) for story in stories), encoding="utf-8")
    if flags.check:
        measured = agreement(repair(flags.check.read_text(encoding="utf-8")), names)
        print(", ".join(f"{what} {value:.6g}" for what, value in measured.items()))


if __name__ == "__main__":
    main()
