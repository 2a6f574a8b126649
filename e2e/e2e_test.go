package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"rsc.io/script"
	"rsc.io/script/scripttest"
)

var update = flag.Bool("update", false, "rewrite the checked-in results and README's table of reasons")

func TestMain(m *testing.M) {
	flag.Parse()
	// Scenarios mostly wait for processes to start, not for a core.
	flag.Set("test.parallel", "4")
	code := m.Run()
	os.RemoveAll(buildFolder())
	os.Exit(code)
}

// weir is the path of the binary, built once, and under the race detector when the test is.
var weir = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildFolder(), "weir")
	argv := []string{"build", "-o", path}
	if raced() {
		argv = append(argv, "-race")
	}
	if out, err := exec.Command("go", append(argv, "..")...).CombinedOutput(); err != nil {
		return path, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func buildFolder() string { return filepath.Join(os.TempDir(), fmt.Sprint("weir-e2e-", os.Getpid())) }

func raced() bool {
	build, _ := debug.ReadBuildInfo()
	for _, setting := range build.Settings {
		if setting.Key == "-race" {
			return setting.Value == "true"
		}
	}
	return false
}

func binary(t testing.TB) string {
	path, err := weir()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	path := binary(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play(t, path, file, archive)
		})
	}
}

// play runs one scenario. When it fails, the log tells its story by its comments, then what everybody saw.
func play(t *testing.T, binary, file string, archive *txtar.Archive) {
	w, err := newWorld(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range archive.Files {
		w.sections[section.Name] = string(section.Data)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(w.account())
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	state, err := script.NewState(ctx, w.dir, []string{}) // never os.Environ(): the engine logs all of it
	if err != nil {
		t.Fatal(err)
	}
	scripttest.Run(t, &script.Engine{Cmds: w.verbs()}, state, file, bytes.NewReader(archive.Comment))
}
