// Command image makes a container image of one static binary, FROM scratch, without a container
// engine:
//
//	image -os linux -arch amd64 -tag pushmesh/pushmesh:v1.2.3 -created 1700000000 BINARY OUT.tar
//
// `docker load` and `podman load` take OUT.tar. The same binary and flags make the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	system := flag.String("os", "linux", "operating system of the binary")
	arch := flag.String("arch", "amd64", "architecture of the binary")
	tag := flag.String("tag", "", "name and version of the image")
	created := flag.Int64("created", 0, "Unix time of the version")
	revision := flag.String("revision", "", "commit")
	flag.Parse()
	if flag.NArg() != 2 || *tag == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*system, *arch, *tag, *revision, time.Unix(*created, 0).UTC(), flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(system, arch, tag, revision string, created time.Time, binary, out string) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	content, err := layer(binary, created)
	if err != nil {
		return err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return err
	}
	img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "pushmesh make release"}})
	if err != nil {
		return err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Created = system, arch, v1.Time{Time: created}
	cfg.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/pushmesh"}, WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title": "pushmesh", "org.opencontainers.image.version": ref.TagStr(), "org.opencontainers.image.revision": revision,
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://github.com/pushmesh/pushmesh",
		},
	}
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		return err
	}
	return tarball.WriteToFile(out, ref, img)
}

// layer is the one layer: the binary, and a folder for what lasts only as long as the container.
func layer(binary string, at time.Time) ([]byte, error) {
	b, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, h := range []*tar.Header{
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "pushmesh", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(b))},
	} {
		h.ModTime, h.Format = at, tar.FormatPAX
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(b); err != nil {
				return nil, err
			}
		}
	}
	err = w.Close()
	return content.Bytes(), err
}
