// Command gotemplate renders templates with Go's text/template and the functions that profiles have: what the crate osm-gotemplate is
// compared with.
//
//	gotemplate                                    reads cases, a JSON object per line, and writes each with its output or error
//	gotemplate generate -inputs DIR -seed N -count N   writes random cases with their results, the same for the same seed
//	gotemplate record -inputs DIR -to DIR         writes the files of recorded cases
//
// Cases whose result is not the same each time are left out, as are those with addresses or with bytes that are not UTF-8.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	time.Local = time.UTC
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	mode := ""
	if len(arguments) > 0 {
		mode, arguments = arguments[0], arguments[1:]
	}
	flags := flag.NewFlagSet(mode, flag.ExitOnError)
	inputs := flags.String("inputs", "", "directory of hand-written inputs")
	seed := flags.Uint64("seed", 1, "seed of the generator")
	count := flags.Int("count", 1000, "number of cases")
	to := flags.String("to", "", "directory for recorded cases")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	switch mode {
	case "":
		return answer(os.Stdin, os.Stdout)
	case "generate":
		return generate(*inputs, *seed, *count, os.Stdout)
	case "record":
		return record(*inputs, *to)
	}
	return fmt.Errorf("unknown mode %q", mode)
}

// answer judges the cases that it reads.
func answer(from io.Reader, to io.Writer) error {
	all := functions()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<26)
	encoder := encoder(to)
	for lines.Scan() {
		var one testCase
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return err
		}
		if err := one.judge(all); err != nil {
			one.Error = "no case: " + err.Error()
			one.Output = nil
		}
		if err := encoder.Encode(one); err != nil {
			return err
		}
	}
	return lines.Err()
}

func encoder(to io.Writer) *json.Encoder {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return encoder
}
