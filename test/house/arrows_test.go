package house

// The sets of packages that several rows of arrows have.
const (
	leaves = " internal/announce internal/bound internal/clock internal/fail internal/fifo " +
		"internal/retry internal/timerq "
	below   = " backend/redisproto/batcher backend/redisproto/heldcache backend/redisproto/lone backend/redisproto/pubsub "
	adapter = "backend backend/redisproto scripts" + below
)

// arrows lists for each package of the product which packages of the project it may import. Paths are relative
// to mortise's, which is ".". Test files and what is below test/ and examples/ may import anything; nothing here
// may import those.
var arrows = map[string]string{
	".": "backend internal/engine internal/lease internal/lockset internal/quorum internal/counters" + leaves,

	"internal/lockset":    "backend internal/engine internal/lease" + leaves,
	"internal/quorum":     "backend internal/engine internal/lease" + leaves,
	"internal/counters":   "backend internal/engine" + leaves,
	"internal/engine":     "backend internal/lease internal/localqueue" + leaves,
	"internal/lease":      "internal/clock internal/fail",
	"internal/localqueue": "internal/clock",
	"internal/announce":   "internal/fail internal/fifo",
	"internal/bound":      "internal/fail",
	"internal/fail":       "backend",
	"internal/retry":      "",
	"internal/timerq":     "internal/clock",
	"internal/clock":      "",
	"internal/fifo":       "",

	"backend":                      "",
	"backend/memory":               "backend",
	"backend/backendtest":          ". backend internal/redistest/anykind",
	"backend/redisproto":           "backend scripts" + below,
	"backend/redisproto/batcher":   "",
	"backend/redisproto/heldcache": "backend",
	"backend/redisproto/lone":      "",
	"backend/redisproto/pubsub":    "backend",
	"backend/valkey":               adapter,
	"redisgo":                      adapter,
	"rueidis":                      adapter,
	"scripts":                      "",

	// leader and once are small, and users of the API; internal/fail gives their errors mortise's form.
	"gocron": ". leader",
	"leader": ". internal/fail",
	"once":   ". internal/fail",

	"fxmodule": ". backend backend/memory middleware/delegation middleware/httplock middleware/telemetry redisgo rueidis",
	"mocks":    ".",

	// middleware/delegation counts holds beyond the limit of mortise.Delegations.
	"middleware/delegation":        ". internal/engine",
	"middleware/grpclock":          ". middleware/delegation middleware/internal/template",
	"middleware/httplock":          ". middleware/delegation middleware/internal/template",
	"middleware/internal/template": "",
	"middleware/telemetry":         ". middleware/delegation",

	"gen/cmd/mortise-gen":    "gen/internal/commands gen/internal/constants gen/internal/luascript gen/profiles",
	"gen/internal/commands":  "gen/internal/constants gen/internal/luascript gen/internal/mistake gen/profiles",
	"gen/internal/constants": "gen/internal/luascript",
	"gen/internal/luascript": "gen/internal/mistake",
	"gen/internal/mistake":   "",
	"gen/profiles":           "",

	"internal/cmd/playground":        "", // for a browser: backend/memory, internal/playground
	"internal/cmd/rules":             "",
	"internal/playground":            ". backend",
	"internal/redistest":             "internal/redistest/check",
	"internal/redistest/anykind":     "backend",
	"internal/redistest/check":       "",
	"internal/redistest/conformance": "backend backend/backendtest internal/redistest internal/redistest/check",
	"internal/redistest/slow":        "backend backend/memory",
	"internal/redistest/middle": ". backend backend/memory internal/redistest internal/redistest/check " +
		"middleware/delegation redisgo",
}
