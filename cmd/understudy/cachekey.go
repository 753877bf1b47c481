package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func (a *app) cacheKeygenCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "keygen [--out FILE]",
		Short: "Make a CURVE key pair for a peer or a client",
		Long: `Make a CURVE key pair. It is written to a new file that only you can read, and the
public key is printed: give that to the others. Without --out the whole pair is
printed. Keys are in Z85, which has shell and YAML metacharacters: single-quote them.`,
		Example: `  understudy cache keygen --out peer-1.key
  understudy cache serve … --curve-key-file peer-1.key --curve-peer 'tcp://10.0.0.2:7701=PUBLIC-KEY'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			key := zmtp.NewCurveKey()
			if out == "" {
				return a.printKeyPair(key)
			}
			if err := writeNew(out, keyText(key)); err != nil {
				return err
			}
			public := zmtp.EncodeKey(key.Public)
			return a.print(map[string]string{"public": public, "file": out}, "%s", public)
		},
	}
	c.Flags().StringVar(&out, "out", "", "write the pair to this new `FILE`, mode 0600, and print the public key only")
	return c
}

func (a *app) printKeyPair(key zmtp.CurveKey) error {
	if a.json() {
		return a.printJSON(map[string]string{"public": zmtp.EncodeKey(key.Public), "secret": zmtp.EncodeKey(key.Secret)})
	}
	_, err := fmt.Fprint(a.stdout, keyText(key))
	return err
}

// keyText is what a key file has.
func keyText(key zmtp.CurveKey) string {
	return "public " + zmtp.EncodeKey(key.Public) + "\nsecret " + zmtp.EncodeKey(key.Secret) + "\n"
}

// writeNew never writes over a key that is there.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if os.IsExist(err) {
		return usererr.Errorf("%s is there already; a key that is in use must not be lost: name another file", path)
	}
	if err != nil {
		return err
	}
	if _, err = f.WriteString(text); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
