package telemetry

import (
	"context"
	"io"
	"sync"
)

// maxLines bounds, in bytes, the log lines that wait for their reader.
const maxLines = 4 << 20

// lines is a writer that never waits: whoever reads our log may be slow or stuck, and exchanges must not be. One
// goroutine writes what has gathered, in as few writes as it can.
type lines struct {
	out io.Writer

	mu      sync.Mutex
	waiting []byte // whole lines, oldest first
	dropped int64
	closed  bool

	wake chan struct{} // holds one: there is something to write, or nothing more will come
	done chan struct{} // closed when the goroutine has ended
}

func newLines(out io.Writer) *lines {
	l := &lines{out: out, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.run()
	return l
}

// Write takes one whole line.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	if l.closed || len(l.waiting)+len(line) > maxLines {
		l.dropped++
	} else {
		l.waiting = append(l.waiting, line...)
	}
	l.mu.Unlock()
	l.ring()
	return len(line), nil
}

// Dropped counts the lines there was no room for.
func (l *lines) Dropped() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

// Close writes what waits, until ctx ends.
func (l *lines) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.ring()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *lines) ring() {
	select {
	case l.wake <- struct{}{}:
	default: // it has been rung, and will look after this line was put in
	}
}

func (l *lines) run() {
	defer close(l.done)
	var spare []byte
	for range l.wake {
		l.mu.Lock()
		gathered, closed := l.waiting, l.closed
		l.waiting = spare[:0]
		l.mu.Unlock()
		if len(gathered) > 0 {
			// There is nobody left to tell of a log that cannot be written.
			_, _ = l.out.Write(gathered)
		}
		if closed {
			return
		}
		spare = gathered
	}
}

// shared lets several loggers write to one writer, a line at a time.
type shared struct {
	mu  sync.Mutex
	out io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}
