package config

import (
	"cmp"
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// steps is how long a file is left alone that is being written: editors and copies do it in several steps.
const steps = 200 * time.Millisecond

// Digest tells one content of the file from another. No file has one, too.
func (s Source) Digest() [sha256.Size]byte {
	text, err := os.ReadFile(cmp.Or(s.File, Ordinary))
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(text)
}

// Watch sends when something has happened where the file lies, until ctx ends: whether its content is another now is the
// receiver's to see. It is the folder that is watched, as editors put a new file in the old one's place, and Kubernetes
// a new folder behind a link beside it; and that of what the file links to.
func (s Source) Watch(ctx context.Context) (<-chan struct{}, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	name := cmp.Or(s.File, Ordinary)
	if err := w.Add(filepath.Dir(name)); err != nil {
		w.Close()
		return nil, err
	}
	if target, err := filepath.EvalSymlinks(name); err == nil && filepath.Dir(target) != filepath.Dir(name) {
		_ = w.Add(filepath.Dir(target)) // at worst SIGHUP is needed
	}
	happened := make(chan struct{}, 1)
	happened <- struct{}{} // the file may have changed since it was read
	go func() {
		defer w.Close()
		var settled <-chan time.Time
		for {
			select {
			case <-w.Events:
			case <-w.Errors: // events were lost: one of them may have been ours
			case <-settled:
				settled = nil
				select {
				case happened <- struct{}{}:
				default: // it is to look already
				}
				continue
			case <-ctx.Done():
				return
			}
			if settled == nil { // else a log that grows beside the file would put it off for ever
				settled = time.After(steps)
			}
		}
	}()
	return happened, nil
}
