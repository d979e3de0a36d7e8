package main

import (
	"strconv"
	"strings"
)

// section is one `##` section of the page with its tables.
type section struct {
	heading string
	tables  []table
}

// table is a Markdown table. title is the line of bold text before it, or "".
type table struct {
	title  string
	header []string
	rows   [][]string
}

// sections reads the tables of a Markdown page.
func sections(page string) []section {
	found := []section{{}}
	title, inTable := "", false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		last := &found[len(found)-1]
		switch {
		case strings.HasPrefix(line, "## "):
			found, title = append(found, section{heading: line[3:]}), ""
		case strings.HasPrefix(line, "|") && !inTable:
			last.tables = append(last.tables, table{title: title, header: cells(line)})
			title = ""
		case strings.HasPrefix(line, "|"):
			current := &last.tables[len(last.tables)-1]
			if !strings.HasPrefix(line, "| --") {
				current.rows = append(current.rows, cells(line))
			}
		case strings.HasPrefix(line, "**") && strings.HasSuffix(line, "**"):
			title = strings.Trim(line, "*")
		}
		inTable = strings.HasPrefix(line, "|")
	}
	return found
}

func cells(line string) []string {
	split := strings.Split(strings.Trim(line, "|"), "|")
	for i := range split {
		split[i] = strings.TrimSpace(split[i])
	}
	return split
}

// column is the index of a column by its heading, or -1.
func (t table) column(heading string) int {
	for i, h := range t.header {
		if h == heading {
			return i
		}
	}
	return -1
}

// number is the first number of a cell; ok is false for a dash.
func number(cell string) (value float64, ok bool) {
	word, _, _ := strings.Cut(strings.TrimSpace(cell), " ")
	value, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSuffix(word, "/s"), ",", ""), 64)
	return value, err == nil
}

// isRate reports whether a cell is a rate, of which more is better.
func isRate(cell string) bool { return strings.Contains(cell, "/s") }
