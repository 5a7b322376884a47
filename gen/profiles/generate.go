package profiles

// The pattern ./... does not reach the modules below backend, so their files are generated from here.
//go:generate -command commands go run ../cmd/mortise-gen commands -profile valkey -package valkey
//go:generate commands -o ../../backend/valkey/commands_gen.go -sending ../../backend/valkey/sending_gen.go
//go:generate go run ../cmd/mortise-gen adapter -profile valkey -package valkey -o ../../backend/valkey/adapter_gen.go
//go:generate go run ../cmd/mortise-gen sql -package postgres -o ../../backend/postgres/sql_gen.go ../../scripts/postgres
//go:generate go run ../cmd/mortise-gen sql -package sqlite -o ../../backend/sqlite/sql_gen.go ../../scripts/sqlite
