package etcd

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mortise-go/mortise/backend"
)

func init() {
	for _, scheme := range []string{"etcd", "etcds"} {
		backend.Register(scheme, func(address string) (backend.Backend, error) {
			config, prefix, err := parse(address)
			if err != nil {
				return nil, err
			}
			return New(config, prefix), nil
		})
	}
}

// parse reads etcd://user:password@host:2379,host2:2379/prefix, or etcds: with TLS, and the parameters ca, cert and
// key: paths of PEM files.
func parse(address string) (config clientv3.Config, prefix string, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	hosts, path := rest, ""
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		hosts, path = rest[:at], rest[at:]
	}
	user := ""
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		user, hosts = hosts[:at+1], hosts[at+1:]
	}
	u, err := url.Parse(scheme + "://" + user + "etcd" + path) // url.Parse takes a single host
	if err != nil || u.Fragment != "" {
		return config, "", errors.New("want etcd://user:password@host:port,host:port/prefix") // err has the URL
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "2379")
		}
		if strings.HasPrefix(host, ":") {
			return config, "", errors.New("a host is empty")
		}
		config.Endpoints = append(config.Endpoints, host)
	}
	config.Username = u.User.Username()
	config.Password, _ = u.User.Password()
	query := u.Query()
	files := transport.TLSInfo{
		TrustedCAFile: query.Get("ca"), CertFile: query.Get("cert"), KeyFile: query.Get("key"),
	}
	for name := range query {
		if !strings.Contains(" ca cert key ", " "+name+" ") {
			return config, "", errors.New("unknown parameter " + name)
		}
	}
	if scheme == "etcds" {
		config.TLS, err = files.ClientConfig()
	} else if len(query) > 0 {
		err = errors.New("ca, cert and key are for the scheme etcds")
	}
	if err != nil {
		return config, "", err
	}
	if prefix = strings.Trim(u.Path, "/"); prefix != "" {
		prefix += "/"
	}
	return config, prefix, nil
}
