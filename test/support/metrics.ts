// The metrics of a server.

export interface Series {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Parses Prometheus's text format. A line in another format is an error. */
export function readMetrics(text: string): { series: Series[]; types: Map<string, string> } {
  const series: Series[] = [];
  const types = new Map<string, string>();
  for (const line of text.split('\n')) {
    const type = /^# TYPE (\w+) (counter|gauge|histogram)$/.exec(line);
    if (type) types.set(type[1]!, type[2]!);
    if (line === '' || line.startsWith('#')) continue;
    const match = /^([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="[^"\\\n]*",?)*)\})? (\S+)$/i.exec(line);
    if (!match || Number.isNaN(Number(match[3]))) throw new Error(`not a line of metrics: ${line}`);
    const labels = [...(match[2] ?? '').matchAll(/([a-z_]+)="([^"]*)"/gi)].map(([, name, value]) => [name!, value!]);
    series.push({ name: match[1]!, labels: Object.fromEntries(labels), value: Number(match[3]) });
  }
  return { series, types };
}
