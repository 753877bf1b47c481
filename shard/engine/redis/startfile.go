package redis

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxIncludes is how many files one configuration is read from.
const maxIncludes = 64

// CheckStartFile returns nil if a server that is started with the configuration file starts as a replica of nobody with its
// fence closed, as one that an agent starts does ([StartArgs]).
func CheckStartFile(path string) error {
	if path == "" {
		return errors.New("no configuration file closes it")
	}
	c := startFile{files: maxIncludes}
	if err := c.read(path); err != nil {
		return fmt.Errorf("its configuration cannot be read: %w", err)
	}
	var missing []string
	if c.primary != nowhereHost+" "+nowherePort {
		missing = append(missing, "replicaof "+nowhereHost+" "+nowherePort)
	}
	if c.replicas != closedWith {
		missing = append(missing, "min-replicas-to-write "+closedWith)
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks %s", path, strings.Join(missing, ", "))
	}
	return nil
}

// startFile is what a configuration says of the fence; of lines that contradict each other the last one counts.
type startFile struct {
	primary, replicas string
	files             int
}

func (c *startFile) read(path string) error {
	if c.files--; c.files < 0 {
		return fmt.Errorf("%s: more than %d files are included", path, maxIncludes)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		for i, w := range words {
			words[i] = strings.Trim(w, `"'`)
		}
		switch name := strings.ToLower(words[0]); {
		case (name == "replicaof" || name == "slaveof") && len(words) == 3:
			c.primary = words[1] + " " + words[2]
		case (name == "min-replicas-to-write" || name == "min-slaves-to-write") && len(words) == 2:
			c.replicas = words[1]
		case name == "include" && len(words) == 2:
			if err := c.include(words[1]); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// include reads the files of a pattern, in the order in which a server does.
func (c *startFile) include(pattern string) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, file := range files {
		if err := c.read(file); err != nil {
			return err
		}
	}
	return nil
}
