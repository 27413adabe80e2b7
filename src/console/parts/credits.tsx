import type { ComponentChildren } from 'preact';
import { count, dateTime } from '../format.ts';
import type { Credits } from '../records.ts';
import { Badge, Card, Gauge } from './basic.tsx';

/** The start of the next day, or of the day of the month, in UTC. */
function nextRefill(refill: NonNullable<Credits['refill']>, nowMs = Date.now()): number {
  const now = new Date(nowMs);
  const [year, month, day] = [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()];
  if (refill.interval === 'daily') return Date.UTC(year, month, day + 1);
  const dayIn = (ofMonth: number) =>
    Date.UTC(year, ofMonth, Math.min(refill.refillDay ?? 1, new Date(Date.UTC(year, ofMonth + 1, 0)).getUTCDate()));
  return dayIn(month) > nowMs ? dayIn(month) : dayIn(month + 1);
}

/** The credits of a key or a customer, and what else is to say of them. */
export function CreditsCard(props: {
  title?: string;
  credits: Credits | undefined;
  edit: ComponentChildren;
  children: ComponentChildren;
}) {
  const { title = 'Credits', credits, edit, children } = props;
  return (
    <Card title={title} actions={edit}>
      {credits && (
        <>
          <p class="figure-value number">
            {count(credits.remaining)} left{' '}
            {credits.debt !== undefined && <Badge tone="bad">debt {count(credits.debt)}</Badge>}
          </p>
          {credits.debt !== undefined && (
            <p class="quiet">Settled holds spent more than the balance. Added credits pay the debt first.</p>
          )}
          {credits.refill ? (
            <>
              <Gauge
                used={Math.max(0, credits.refill.amount - credits.remaining)}
                of={credits.refill.amount}
                label="Credits used"
              />
              <p class="quiet">
                Refilled to {count(credits.refill.amount)} {credits.refill.interval}, next at{' '}
                {dateTime(nextRefill(credits.refill), { seconds: false })} UTC.
              </p>
            </>
          ) : (
            <p class="quiet">It is not refilled.</p>
          )}
        </>
      )}
      {children}
    </Card>
  );
}
