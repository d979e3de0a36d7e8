package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// insertRows has Debian's sqlite3 insert rows, each in a transaction of its own
// that is synced, and reports each number when sqlite3 has answered.
func insertRows(ctx context.Context, name, path string) error {
	command := exec.CommandContext(ctx, "sqlite3", "-batch", path)
	in, err := command.StdinPipe()
	if err != nil {
		return err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	answers := bufio.NewScanner(out)
	exchange := func(statement string) (string, error) {
		if _, err := fmt.Fprintln(in, statement); err != nil {
			return "", err
		}
		if !answers.Scan() {
			return "", errors.Join(errors.New("sqlite3 ended"), answers.Err())
		}
		return answers.Text(), nil
	}
	_, err = exchange("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY, text TEXT);")
	for err == nil && ctx.Err() == nil {
		var answer string
		if answer, err = exchange("INSERT INTO t(text) VALUES (hex(randomblob(100))); SELECT max(n) FROM t;"); err == nil {
			err = report("%s %s", name, answer)
		}
		time.Sleep(pause)
	}
	return errors.Join(err, in.Close(), command.Wait())
}
