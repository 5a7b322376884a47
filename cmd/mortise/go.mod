module github.com/mortise-go/mortise/cmd/mortise

go 1.26

require (
	github.com/mortise-go/mortise v0.0.0
	github.com/redis/go-redis/v9 v9.20.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.7.6 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/crypto v0.37.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/mortise-go/mortise/backend/postgres v0.0.0
	github.com/spf13/cobra v1.10.1
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/sys v0.47.0
)

replace (
	github.com/mortise-go/mortise => ../..
	github.com/mortise-go/mortise/backend/postgres => ../../backend/postgres
)
