// Command pulumi-resource-kubernetes is Pulumi's own kubernetes plugin, for tests that compare with it.
//
// Pulumi's main package embeds two files that it generates at a release. This one reads the files of the
// module that they are made of, from the folder "schema" next to the executable.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

func main() {
	executable, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	folder := filepath.Join(filepath.Dir(executable), "schema")
	schema, mapping := read(folder, "schema.json"), read(folder, "terraform-mapping.json")
	provider.Serve("kubernetes", version.Version, schema, mapping)
}

func read(folder, name string) []byte {
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		log.Fatal(err)
	}
	return text
}
