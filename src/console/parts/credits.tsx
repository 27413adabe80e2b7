import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { count, moment } from '../format.ts';
import type { Credits } from '../records.ts';
import { Badge, Card, Gauge } from './basic.tsx';
import { Act } from './dialog.tsx';
import { CreditsFields, creditChangesOf, creditsDraftOf, creditsOf } from './keyForm.tsx';

/** The start of the next day, or of the day of the month, in UTC. */
function nextRefill(refill: NonNullable<Credits['refill']>, nowMs = Date.now()): number {
  const now = new Date(nowMs);
  const [year, month, day] = [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()];
  if (refill.interval === 'daily') return Date.UTC(year, month, day + 1);
  const dayIn = (ofMonth: number) =>
    Date.UTC(year, ofMonth, Math.min(refill.refillDay ?? 1, new Date(Date.UTC(year, ofMonth + 1, 0)).getUTCDate()));
  return dayIn(month) > nowMs ? dayIn(month) : dayIn(month + 1);
}

/** The credits of a key or a customer, and their debt and refill. */
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
                {moment(nextRefill(credits.refill), { seconds: false })}.
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

/** The dialog that changes the credits of a key or a customer. */
export function EditCredits(props: {
  name: string;
  operation: string;
  /** The member of the request that names the key or the customer. */
  reference: object;
  credits: Credits | undefined;
  /** The text for an empty balance. */
  none?: string;
  close: () => void;
}) {
  const { name, operation, reference, none, close } = props;
  // As they were when the dialog opened: the screen reads them again while it is open.
  const [initial] = useState(creditsDraftOf(props.credits));
  const [draft, setDraft] = useState(initial);
  const credits = creditChangesOf(draft, initial);
  return (
    <Act
      title={`Credits of ${name}`}
      operation={operation}
      input={{ ...reference, credits }}
      act="Save"
      ready={credits !== undefined}
      isPartial={creditsOf(draft) === undefined}
      close={close}
    >
      <CreditsFields draft={draft} set={setDraft} {...(none && { none })} />
      <p class="hint">
        A changed balance is set to its figure, also if credits are spent before you save. Otherwise it stays.
      </p>
    </Act>
  );
}
