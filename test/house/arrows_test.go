package house

// The sets of packages that several rows of arrows have.
const (
	leaves  = " internal/clock internal/retry internal/timerq "
	below   = " backend/redisproto/batcher backend/redisproto/heldcache backend/redisproto/pubsub "
	adapter = "backend backend/redisproto scripts" + below
)

// arrows lists for each package of the product which packages of the project it may import. Paths are relative
// to mortise's, which is ".". Test files and what is below test/ and examples/ may import anything; nothing here
// may import those.
var arrows = map[string]string{
	".": "backend internal/engine internal/lockset internal/quorum internal/counters" + leaves,

	"internal/lockset":    "backend internal/engine" + leaves,
	"internal/quorum":     "backend internal/engine" + leaves,
	"internal/counters":   "backend internal/engine" + leaves,
	"internal/engine":     "backend internal/lease internal/localqueue" + leaves,
	"internal/lease":      "internal/clock internal/timerq",
	"internal/localqueue": "",
	"internal/retry":      "internal/clock",
	"internal/timerq":     "internal/clock",
	"internal/clock":      "",

	"backend":                      "",
	"backend/memory":               "backend",
	"backend/backendtest":          ". backend",
	"backend/redisproto":           "backend scripts" + below,
	"backend/redisproto/batcher":   "",
	"backend/redisproto/heldcache": "backend",
	"backend/redisproto/pubsub":    "backend",
	"backend/valkey":               adapter,
	"redisgo":                      adapter,
	"rueidis":                      adapter,
	"scripts":                      "",

	"fxmodule": ". backend backend/memory middleware/delegation middleware/httplock middleware/telemetry redisgo rueidis",
	"mocks":    ".",

	"middleware/delegation":        ".",
	"middleware/grpclock":          ". middleware/delegation middleware/internal/template",
	"middleware/httplock":          ". middleware/delegation middleware/internal/template",
	"middleware/internal/template": "",
	"middleware/telemetry":         ". middleware/delegation",

	"gen/cmd/mortise-gen": "gen/commands gen/constants gen/luascript",
	"gen/commands":        "gen/constants gen/luascript gen/mistake gen/profiles",
	"gen/constants":       "gen/luascript",
	"gen/luascript":       "gen/mistake",
	"gen/mistake":         "",
	"gen/profiles":        "",

	"internal/cmd/rules":             "",
	"internal/redistest":             "",
	"internal/redistest/check":       "",
	"internal/redistest/conformance": "backend backend/backendtest internal/redistest",
}
