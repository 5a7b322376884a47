package profiles

// The module valkey is none of what ./... names here, so it is generated from here.
//go:generate go run ../cmd/mortise-gen commands -profile valkey -package valkey -o ../../backend/valkey/commands_gen.go
//go:generate go run ../cmd/mortise-gen adapter -profile valkey -package valkey -o ../../backend/valkey/adapter_gen.go
