// Package upstream is how a server behind us is asked: its connections, its timeouts, and how much of it may be
// asked at once.
//
// Whoever asks enters first. Enter counts before anything is dialled (R24), queues for a bounded time in a bounded
// queue, those first whom somebody waits for (R26), and hands out a [Slot]; the slot ends with the last byte of the
// body, or leaves the budget at the head when the answer turns out to be a stream that never ends. So the limit holds
// even when everything misses.
package upstream
