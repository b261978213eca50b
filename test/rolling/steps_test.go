package rolling

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What a store of the release before can't go on with. Each is refused in a step, unless its table
// or function is one that the steps since the release made.
var contractions = []struct {
	is  *regexp.Regexp
	why string
}{
	{regexp.MustCompile(`(?i)\bDROP\s+(TABLE|COLUMN|VIEW|INDEX|FUNCTION|SEQUENCE|SCHEMA|TYPE|CONSTRAINT|DEFAULT|NOT\s+NULL)\b`), "takes away what older stores use"},
	{regexp.MustCompile(`(?i)\bALTER\s+TABLE\b[^;]*\bDROP\s+\w`), "takes away what older stores use"},
	{regexp.MustCompile(`(?i)\bEXECUTE\s+(''|format\b)`), "takes away, for all that can be seen: its text is not judged"},
	{regexp.MustCompile(`(?i)\bRENAME\b`), "renames what older stores use"},
	{regexp.MustCompile(`(?i)\bSET\s+SCHEMA\b`), "moves what older stores use"},
	{regexp.MustCompile(`(?i)\b(DELETE\s+FROM|TRUNCATE)\b`), "deletes what older stores may look for"},
	{regexp.MustCompile(`(?i)\bSET\s+NOT\s+NULL\b`), "refuses rows that older stores write"},
	{regexp.MustCompile(`(?i)\bALTER\s+(COLUMN\s+)?\w+\s+(SET\s+DATA\s+)?TYPE\b`), "changes the type of what older stores use"},
	{regexp.MustCompile(`(?i)\bADD\s+(CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN|EXCLUDE)\b`), "refuses rows that older stores write"},
	{regexp.MustCompile(`(?i)\bADD\s+COLUMN\b[^,]*\b(UNIQUE|PRIMARY\s+KEY|REFERENCES|CHECK)\b`), "refuses rows that older stores write"},
	{regexp.MustCompile(`(?i)\bCREATE\s+UNIQUE\s+INDEX\b`), "refuses rows that older stores write"},
	{regexp.MustCompile(`(?i)\bCREATE\s+(CONSTRAINT\s+)?TRIGGER\b`), "changes what older stores' statements do"},
	{regexp.MustCompile(`(?i)\b(CREATE\s+(OR\s+REPLACE\s+)?RULE|ENABLE\s+ROW\s+LEVEL\s+SECURITY)\b`), "changes what older stores' statements do"},
	{regexp.MustCompile(`(?i)\bREVOKE\b`), "takes away what older stores may do"},
}

var (
	column   = regexp.MustCompile(`(?i)\bADD\s+(?:COLUMN\s+)?(?:IF\s+NOT\s+EXISTS\s+)?(\w+)([^,;]*)`)
	notNull  = regexp.MustCompile(`(?i)\bNOT\s+NULL\b`)
	filled   = regexp.MustCompile(`(?i)\b(DEFAULT|GENERATED)\b`)
	created  = regexp.MustCompile(`(?i)\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:UNLOGGED\s+)?(?:TABLE|VIEW|FUNCTION|SEQUENCE|INDEX|UNIQUE\s+INDEX)\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:pushmesh\.)?(\w+)`)
	ours     = regexp.MustCompile(`(?i)\bpushmesh\.(\w+)`)
	target   = regexp.MustCompile(`(?i)\b(?:ALTER\s+TABLE|ON|DELETE\s+FROM|TRUNCATE|DROP\s+(?:TABLE|VIEW|INDEX|FUNCTION|SEQUENCE))\s+(?:IF\s+EXISTS\s+)?(\w+)`)
	function = regexp.MustCompile(`(?is)\bCREATE\s+(OR\s+REPLACE\s+)?FUNCTION\b`)
	body     = regexp.MustCompile(`(?s)\$\w*\$.*?\$\w*\$`)
	quoted   = regexp.MustCompile(`'[^']*'`)
	// worksWith says of the statement that follows why stores of that version go on with it.
	worksWith = regexp.MustCompile(`^-- works with (v\S+): \S.*\S`)
)

// judgeSteps returns what is wrong with steps since a release, whose steps were before: they must
// let its stores go on. released are all versions, the last of which has the steps of before.
func judgeSteps(before, now map[string]string, released []string) (wrong []string) {
	newest := ""
	for _, name := range sorted(before) {
		newest = number(name)
		if text, is := now[name]; !is {
			wrong = append(wrong, name+" was released, and is gone")
		} else if text != before[name] {
			wrong = append(wrong, name+" was released, and is changed: write a new step")
		}
	}
	made := map[string]bool{}
	for _, name := range sorted(now) {
		if _, old := before[name]; old {
			continue
		}
		if number(name) <= newest {
			wrong = append(wrong, fmt.Sprintf("%s comes before %s, which was released: databases that have that refuse this one", name, newest))
		}
		for _, s := range statements(now[name]) {
			for _, why := range judgeStatement(s, made, released[len(released)-1]) {
				wrong = append(wrong, fmt.Sprintf("%s %s: %s", name, why, strings.Join(strings.Fields(s.text), " ")))
			}
			for _, m := range created.FindAllStringSubmatch(s.text, -1) {
				made[m[1]] = true
			}
		}
	}
	return wrong
}

func number(name string) string {
	n, _, _ := strings.Cut(name, "_")
	return n
}

// statement is one of a step's way up, without comments and bodies of functions.
type statement struct {
	text  string
	works string // the version that stores may have, by its comment
}

// statements of a step's way up.
func statements(step string) (all []statement) {
	_, up, _ := strings.Cut(step, "-- +goose Up")
	up, _, _ = strings.Cut(up, "-- +goose Down")
	var text strings.Builder
	works := []int{} // where in text a comment that says so ends
	versions := []string{}
	for line := range strings.Lines(up) {
		if m := worksWith.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			works, versions = append(works, text.Len()), append(versions, m[1])
			continue
		}
		code, _, _ := strings.Cut(line, "--")
		text.WriteString(code + "\n")
	}
	for begin, rest := 0, text.String(); strings.TrimSpace(rest) != ""; {
		end := endOf(rest)
		s := statement{text: rest[:end]}
		for i, at := range works {
			if at >= begin && at < begin+end {
				s.works = versions[i]
			}
		}
		begin, rest = begin+end, rest[end:]
		if function.MatchString(s.text) {
			s.text = body.ReplaceAllString(s.text, "")
		}
		s.text = strings.TrimSpace(quoted.ReplaceAllString(s.text, "''"))
		if s.text != "" && s.text != ";" {
			all = append(all, s)
		}
	}
	return all
}

// endOf is where the first statement of a text ends.
func endOf(text string) int {
	hidden := append(body.FindAllStringIndex(text, -1), quoted.FindAllStringIndex(text, -1)...)
	for i, c := range text {
		if c == ';' && !slices.ContainsFunc(hidden, func(h []int) bool { return h[0] < i && i < h[1] }) {
			return i + 1
		}
	}
	return len(text)
}

// judgeStatement returns why stores of before can't go on with a statement. made is what steps
// since made, which those stores don't know.
func judgeStatement(s statement, made map[string]bool, released string) (why []string) {
	if s.works != "" && s.works != released {
		why = append(why, fmt.Sprintf("says that it works with %s, and the last release is %s", s.works, released))
	}
	if s.works != "" || onlyOn(s.text, made) {
		return why
	}
	for _, c := range contractions {
		if c.is.MatchString(s.text) {
			why = append(why, c.why)
		}
	}
	for _, m := range column.FindAllStringSubmatch(s.text, -1) {
		if notNull.MatchString(m[2]) && !filled.MatchString(m[2]) {
			why = append(why, "adds column "+m[1]+", which older stores don't fill, NOT NULL and without a default")
		}
	}
	return why
}

// onlyOn reports whether a statement is about nothing but what was made.
func onlyOn(text string, made map[string]bool) bool {
	about := ours.FindAllStringSubmatch(text, -1)
	if len(about) == 0 {
		about = target.FindAllStringSubmatch(text, -1)
	}
	for _, m := range about {
		if !made[m[1]] {
			return false
		}
	}
	return len(about) > 0
}

// What is wrong is found, and nothing else.
func TestStepsThatBreakOlderStoresAreFound(t *testing.T) {
	const old = "-- +goose Up\nCREATE TABLE pushmesh.a (x int);\n-- +goose Down\nDROP TABLE pushmesh.a;\n"
	for sql, want := range map[string]string{
		// adds
		"CREATE TABLE pushmesh.b (x int PRIMARY KEY, y int NOT NULL CHECK (y > 0));":                                                              "",
		"ALTER TABLE pushmesh.a ADD COLUMN y int, ADD COLUMN z text COLLATE \"C\" NOT NULL DEFAULT 'DROP TABLE; x';":                              "",
		"CREATE INDEX a_x ON pushmesh.a (x); -- DROP TABLE pushmesh.a;":                                                                           "",
		"-- +goose StatementBegin\nCREATE FUNCTION pushmesh.f() RETURNS void AS $$ BEGIN; DROP TABLE pushmesh.a; END $$;\n-- +goose StatementEnd": "",
		"CREATE TABLE pushmesh.b (x int); CREATE UNIQUE INDEX b_x ON pushmesh.b (x); ALTER TABLE pushmesh.b ADD CONSTRAINT c CHECK (x > 0);":      "",
		"CREATE FUNCTION pushmesh.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE ALL ON FUNCTION pushmesh.f() FROM PUBLIC;":                   "",
		"CREATE TABLE b (x INTEGER); CREATE UNIQUE INDEX b_x ON b (x);":                                                                           "",
		"INSERT INTO pushmesh.a VALUES (1);":                                                                                         "",
		"-- works with v0.2.0: nothing has read it since\nALTER TABLE pushmesh.a DROP COLUMN x;":                                     "",
		"ALTER TABLE pushmesh.a\n  ALTER COLUMN x SET DEFAULT 7;":                                                                    "",
		"CREATE OR REPLACE FUNCTION pushmesh.g() RETURNS void AS $body$ BEGIN; DELETE FROM pushmesh.a; END $body$ LANGUAGE plpgsql;": "",
		// takes away
		"DROP TABLE pushmesh.a;":         "takes away",
		"DROP TABLE IF EXISTS a;":        "takes away",
		"ALTER TABLE pushmesh.a DROP x;": "takes away",
		"DO $$ BEGIN EXECUTE 'ALTER TABLE pushmesh.a DROP COLUMN x'; END $$;":                                         "takes away",
		"DO $$ BEGIN EXECUTE format('DROP TABLE pushmesh.%s', 'a'); END $$;":                                          "takes away",
		"ALTER TABLE pushmesh.a DROP COLUMN x;":                                                                       "takes away",
		"alter table pushmesh.a\n\tdrop\n\tcolumn x;":                                                                 "takes away",
		"ALTER TABLE pushmesh.a ALTER COLUMN x DROP DEFAULT;":                                                         "takes away",
		"DROP FUNCTION pushmesh.f();":                                                                                 "takes away",
		"REVOKE ALL ON pushmesh.a FROM PUBLIC;":                                                                       "may do",
		"DELETE FROM pushmesh.a;":                                                                                     "deletes",
		"TRUNCATE pushmesh.a;":                                                                                        "deletes",
		"CREATE TABLE pushmesh.b (x int); DROP TABLE pushmesh.a; ":                                                    "takes away",
		"CREATE TABLE pushmesh.b (x int); DROP TABLE pushmesh.a, pushmesh.b;":                                         "takes away",
		"-- +goose StatementBegin\nDO $$ BEGIN ALTER TABLE pushmesh.a DROP COLUMN x; END $$;\n-- +goose StatementEnd": "takes away",
		// renames, changes
		"ALTER TABLE pushmesh.a RENAME TO b;":                                  "renames",
		"ALTER TABLE pushmesh.a RENAME COLUMN x TO y;":                         "renames",
		"CREATE TABLE b (x INTEGER); DROP TABLE a; ALTER TABLE b RENAME TO a;": "takes away",
		"ALTER TABLE pushmesh.a SET SCHEMA public;":                            "moves",
		"ALTER TABLE pushmesh.a ALTER COLUMN x TYPE bigint;":                   "type",
		"ALTER TABLE pushmesh.a ALTER x SET DATA TYPE text;":                   "type",
		"CREATE TRIGGER t BEFORE INSERT ON pushmesh.a EXECUTE FUNCTION f();":   "statements do",
		// tightens
		"ALTER TABLE pushmesh.a ADD COLUMN y int NOT NULL;":                                       "without a default",
		"ALTER TABLE pushmesh.a ADD y int NOT NULL;":                                              "without a default",
		"ALTER TABLE pushmesh.a ADD COLUMN y int NOT NULL, ADD COLUMN z int DEFAULT 1;":           "without a default",
		"ALTER TABLE pushmesh.a ALTER COLUMN x SET NOT NULL;":                                     "refuses rows",
		"ALTER TABLE pushmesh.a ADD CONSTRAINT c CHECK (x > 0);":                                  "refuses rows",
		"ALTER TABLE pushmesh.a ADD UNIQUE (x);":                                                  "refuses rows",
		"ALTER TABLE pushmesh.a ADD COLUMN y int DEFAULT 1 UNIQUE;":                               "refuses rows",
		"CREATE UNIQUE INDEX a_x ON pushmesh.a (x);":                                              "refuses rows",
		"-- works with v0.1.0: nothing reads it\nALTER TABLE pushmesh.a DROP COLUMN x;":           "the last release is v0.2.0",
		"-- works with v0.2.0: nothing reads it\nSELECT 1; ALTER TABLE pushmesh.a DROP COLUMN x;": "takes away",
		"-- works with v0.2.0:\nALTER TABLE pushmesh.a DROP COLUMN x;":                            "takes away",
	} {
		before := map[string]string{"00001_a.sql": old}
		now := map[string]string{"00001_a.sql": old, "00002_b.sql": "-- +goose Up\n" + sql + "\n-- +goose Down\nDROP TABLE pushmesh.b;\n"}
		wrong := judgeSteps(before, now, []string{"v0.1.0", "v0.2.0"})
		if good := want == "" && len(wrong) == 0 || want != "" && len(wrong) > 0 && strings.Contains(strings.Join(wrong, "\n"), want); !good {
			t.Errorf("%s\n\tfound %q, want %q", sql, wrong, want)
		}
	}
	good := map[string]string{"00003_a.sql": old}
	for name, c := range map[string]struct {
		now  map[string]string
		want string
	}{
		"gone":       {map[string]string{}, "is gone"},
		"changed":    {map[string]string{"00003_a.sql": old + " "}, "is changed"},
		"in between": {map[string]string{"00003_a.sql": old, "00002_b.sql": old}, "comes before"},
		"the same":   {map[string]string{"00003_a.sql": old, "00003_b.sql": old}, "comes before"},
	} {
		if wrong := judgeSteps(good, c.now, []string{"v0.1.0"}); len(wrong) != 1 || !strings.Contains(wrong[0], c.want) {
			t.Errorf("%s: found %q, want %q", name, wrong, c.want)
		}
	}
}
