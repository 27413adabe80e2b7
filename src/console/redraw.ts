// Draws the whole page again, after a change of what any part of it may display.

const event = 'tollgate.redraw';

export const redraw = () => dispatchEvent(new Event(event));

/** Returns a function that ends it. */
export function onRedraw(listener: () => void): () => void {
  addEventListener(event, listener);
  return () => removeEventListener(event, listener);
}
