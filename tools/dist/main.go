// Command dist packs a program of a release into an image for containers, without an engine: one tarball that is an OCI layout and
// has what `docker load` reads beside it. The same program, version and time give the same bytes.
//
//	dist -program understudy-linux-amd64 -arch amd64 -version 0.1.0 -time 2026-11-26T08:00:00Z -dockerfile Dockerfile -o image.tar
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	var r release
	flag.StringVar(&r.program, "program", "", "`FILE` of the program, for Linux")
	flag.StringVar(&r.arch, "arch", "", "`ARCH` as Go names it")
	flag.StringVar(&r.version, "version", "", "`VERSION`, the image's tag")
	flag.StringVar(&r.dockerfile, "dockerfile", "", "`FILE` that says what the image is started with")
	at := flag.String("time", "", "`TIME` that everything in it bears, RFC 3339")
	out := flag.String("o", "", "`FILE` to write")
	flag.Parse()
	var err error
	if r.at, err = time.Parse(time.RFC3339, *at); err == nil {
		err = r.pack(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

type release struct {
	program, arch, version, dockerfile string
	at                                 time.Time
}

func (r release) pack(out string) error {
	img, err := r.image()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := r.lay(img, dir); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	if err := r.archive(f, dir); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// image is one layer on nothing. What it is started with is what the Dockerfile says.
func (r release) image() (v1.Image, error) {
	files, err := r.layer()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", r.arch, v1.Time{Time: r.at}
	config.History = []v1.History{{Created: config.Created, CreatedBy: "understudy " + r.version}}
	if config.Config, err = started(r.dockerfile); err != nil {
		return nil, err
	}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title":    "understudy",
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.licenses": "MIT",
	}
	return mutate.ConfigFile(img, config)
}

// layer is the file system: the program, the authorities that Mozilla trusts, and a folder that anybody may write to.
func (r release) layer() ([]byte, error) {
	program, err := os.ReadFile(r.program)
	if err != nil {
		return nil, err
	}
	var authorities bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file of certificates cannot say a constraint
			if err := pem.Encode(&authorities, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
				return nil, err
			}
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range []struct {
		name string
		mode int64
		data []byte
	}{
		{"understudy", 0o755, program},
		{"etc/", 0o755, nil}, {"etc/ssl/", 0o755, nil}, {"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities.Bytes()},
		{"state/", 0o1777, nil},
	} {
		if err := r.put(w, e.name, e.mode, e.data); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

func (r release) put(w *tar.Writer, name string, mode int64, data []byte) error {
	kind := byte(tar.TypeReg)
	if name[len(name)-1] == '/' {
		kind = tar.TypeDir
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: int64(len(data)), ModTime: r.at, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// lay writes the OCI layout, and the list that older readers of images look for.
func (r release) lay(img v1.Image, dir string) error {
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "docker.io/library/understudy:" + r.version,
	})); err != nil {
		return err
	}
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	blob := func(d v1.Descriptor) string { return "blobs/sha256/" + d.Digest.Hex }
	text, err := json.Marshal([]map[string]any{{
		"Config": blob(m.Config), "RepoTags": []string{"understudy:" + r.version}, "Layers": []string{blob(m.Layers[0])},
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o644)
}

// archive writes the folder's files in the order of their names.
func (r release) archive(out io.Writer, dir string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return r.put(w, filepath.ToSlash(name)+"/", 0o755, nil)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return r.put(w, filepath.ToSlash(name), 0o644, data)
	})
	if err != nil {
		return err
	}
	return w.Close()
}
