// A latency histogram as SVG: the share of requests by latency, on a logarithmic axis, with marked percentiles.
import { percentile } from './load.mjs';
import { micros, number } from './results.mjs';

const width = 960;
const height = 470;
const left = 70;
const right = 30;
const top = 140;
const bottom = 60;
const binsPerDecade = 24;
const marks = [
  ['p50', 0.5],
  ['p90', 0.9],
  ['p99', 0.99],
  ['p99.9', 0.999],
  ['max', 1],
];

const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

/** `latency`: [microseconds, count] in order. */
export function histogramSvg({ title, subtitle, latency }) {
  const binOf = (value) => Math.floor(Math.log10(Math.max(value, 1)) * binsPerDecade);
  const bins = new Map();
  for (const [value, count] of latency) bins.set(binOf(value), (bins.get(binOf(value)) ?? 0) + count);
  const highest = Math.max(...bins.values());
  const total = latency.reduce((sum, [, count]) => sum + count, 0);

  // The axis begins and ends at a 1, 2 or 5 of a decade, with room for the outermost bars.
  const ticks = [];
  for (let decade = 1; decade <= 1e9; decade *= 10) ticks.push(decade, 2 * decade, 5 * decade);
  const first = ticks.findLast((tick) => tick <= Math.max(latency[0][0], 1));
  const last = ticks.find((tick) => tick > latency.at(-1)[0] * 10 ** (1 / binsPerDecade));
  const shownTicks = ticks.filter((tick) => tick >= first && tick <= last);
  const span = Math.log10(last / first);
  const x = (value) => left + (Math.log10(Math.max(value, first) / first) / span) * (width - left - right);
  const y = (count) => height - bottom - (count / highest) * (height - top - bottom);
  const at = (value) => value.toFixed(1);

  const bars = [...bins].map(([bin, count]) => {
    const from = x(10 ** (bin / binsPerDecade));
    const to = x(10 ** ((bin + 1) / binsPerDecade));
    return `<rect x="${at(from)}" y="${at(y(count))}" width="${at(Math.max(to - from - 1, 0.5))}" height="${at(height - bottom - y(count))}" fill="#4a78b8"/>`;
  });
  const axis = shownTicks.map((tick) => {
    const isDecade = Number.isInteger(Math.log10(tick));
    const label = span < 2.5 || isDecade ? micros(tick) : '';
    return (
      `<line x1="${at(x(tick))}" y1="${height - bottom}" x2="${at(x(tick))}" y2="${height - bottom + 6}" stroke="#333"/>` +
      `<text x="${at(x(tick))}" y="${height - bottom + 22}" text-anchor="middle">${label}</text>`
    );
  });
  const shares = [0.5, 1].map((part) => {
    const share = `${number((100 * part * highest) / total)} %`;
    return (
      `<line x1="${left}" y1="${at(y(part * highest))}" x2="${width - right}" y2="${at(y(part * highest))}" stroke="#e3e3e3"/>` +
      `<text x="${left - 8}" y="${at(y(part * highest) + 4)}" text-anchor="end">${share}</text>`
    );
  });
  // A row for each label, so that percentiles close to each other stay readable.
  const lines = marks.map(([name, share], index) => {
    const value = percentile(latency, share);
    const row = 68 + index * 15;
    const anchor = x(value) > width - right - 90 ? 'end' : 'start';
    const offset = anchor === 'end' ? -4 : 4;
    return (
      `<line x1="${at(x(value))}" y1="${row - 10}" x2="${at(x(value))}" y2="${height - bottom}" stroke="#c0392b" stroke-dasharray="4 3"/>` +
      `<text x="${at(x(value) + offset)}" y="${row}" text-anchor="${anchor}" fill="#c0392b">${name} ${micros(value)}</text>`
    );
  });

  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="12" fill="#333">
<rect width="${width}" height="${height}" fill="#fff"/>
<text x="${left}" y="26" font-size="16" font-weight="600">${escaped(title)}</text>
<text x="${left}" y="45" fill="#666">${escaped(subtitle)}</text>
${shares.join('\n')}
${bars.join('\n')}
<line x1="${left}" y1="${height - bottom}" x2="${width - right}" y2="${height - bottom}" stroke="#333"/>
${axis.join('\n')}
${lines.join('\n')}
<text x="${(left + width - right) / 2}" y="${height - 14}" text-anchor="middle" fill="#666">latency (logarithmic); height: share of requests</text>
</svg>
`;
}
