module github.com/mortise-go/mortise/test/house

go 1.26.0

require (
	github.com/uudashr/gocognit v1.3.0
	golang.org/x/tools v0.51.0
)

require (
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
)
