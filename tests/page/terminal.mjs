// Draws a terminal as SVG: plain text, no font of elsewhere.

const COLUMNS = 120;
const WIDTH = 8.4;
const HEIGHT = 20;
const PAD = 20;

const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** A long line is cut, since broken ones would make a table hard to read. */
const cut = (line) => (line.length > COLUMNS ? `${line.slice(0, COLUMNS - 1)}…` : line);

/** Draws commands with their output: a list of pairs. */
export function drawTerminal(shown) {
  const rows = [];
  for (const [command, output] of shown) {
    if (rows.length) rows.push({ text: "" });
    rows.push({ text: `$ ${command}`, style: "command" });
    for (const line of output.trimEnd().split("\n")) rows.push({ text: cut(line) });
  }
  const [width, height] = [COLUMNS * WIDTH + 2 * PAD, rows.length * HEIGHT + 2 * PAD];
  const lines = rows.map(({ text, style }, n) => {
    if (!text) return "";
    // Each line has the length that its columns have, whatever the font, so that tables stay straight.
    const length = ([...text].length * WIDTH).toFixed(1);
    const place = `x="${PAD}" y="${PAD + (n + 1) * HEIGHT - 6}" textLength="${length}"`;
    return `<text ${place}${style ? ` class="${style}"` : ""} xml:space="preserve">${escaped(text)}</text>\n`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>Moongate in a terminal</title>
<style>
rect { fill: #16171b }
text { fill: #d6d8de; font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace }
.command { fill: #ffffff; font-weight: bold }
</style>
<rect width="100%" height="100%" rx="8"/>
${lines.join("")}</svg>
`;
}
