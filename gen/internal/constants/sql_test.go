package constants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSQLIsAConstantForEachFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := SQL("p", dir); err == nil {
		t.Error("a folder without statements is no error")
	}
	write("lock_row.sql", "-- Reads a row.\n--\n-- And more.\nselect 1 -- one\n  -- left out\n\n  from t\n")
	got, err := SQL("p", dir)
	if err != nil {
		t.Fatal(err)
	}
	want := "// lockRowSQL is lock_row.sql.\n//\n// Reads a row.\n//\n// And more.\n" +
		"const lockRowSQL = `select 1 -- one\n  from t`\n"
	if !strings.HasSuffix(string(got), want) {
		t.Errorf("got\n%s\nwant at the end\n%s", got, want)
	}
	write("empty.sql", "-- Nothing.\n")
	if _, err := SQL("p", dir); err == nil || !strings.Contains(err.Error(), "empty.sql") {
		t.Errorf("a file without a statement: %v, want an error that names it", err)
	}
}
