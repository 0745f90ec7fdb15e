package embed

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coordd/coordd/pkg/featuregate"
)

// featureTable is etcd's list of feature gates, so that its command lines work.
var featureTable = map[featuregate.Feature]featuregate.Spec{
	"StopGRPCServiceOnDefrag":      {Stage: featuregate.Alpha},
	"InitialCorruptCheck":          {Stage: featuregate.Alpha},
	"CompactHashCheck":             {Stage: featuregate.Alpha},
	"TxnModeWriteWithSharedBuffer": {Stage: featuregate.Beta, Default: true},
	leaseCheckpoint:                {Stage: featuregate.Alpha},
	leaseCheckpointPersist:         {Stage: featuregate.Alpha},
	"SetMemberLocalAddr":           {Stage: featuregate.Alpha},
	"FastLeaseKeepAlive":           {Stage: featuregate.Beta, Default: true},
	"PriorityRequest":              {Stage: featuregate.Alpha},
}

const (
	leaseCheckpoint        featuregate.Feature = "LeaseCheckpoint"
	leaseCheckpointPersist featuregate.Feature = "LeaseCheckpointPersist"
)

// gates is a text that package featuregate takes.
func gates(p *string) *value {
	v := text(p)
	v.set = func(s string) error {
		if _, err := parseGates(s); err != nil {
			return err
		}
		*p = s
		return nil
	}
	return v
}

func parseGates(s string) (*featuregate.Gates, error) {
	g, err := featuregate.New(featureTable)
	if err != nil {
		return nil, err
	}
	return g, g.Set(s)
}

// registerGates tells of each gate whether it is on.
func registerGates(to prometheus.Registerer, settings string) error {
	g, err := parseGates(settings)
	if err != nil {
		return err
	}
	enabled := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "etcd_server_feature_enabled", Help: "1 if a feature gate is on."}, []string{"name", "stage"})
	for _, s := range g.List() {
		v := 0.0
		if s.Enabled {
			v = 1
		}
		enabled.WithLabelValues(string(s.Feature), string(s.Stage)).Set(v)
	}
	return to.Register(enabled)
}

// checkGates reports gates that contradict each other.
func checkGates(s string) error {
	g, err := parseGates(s)
	if err != nil {
		return err
	}
	if g.Enabled(leaseCheckpointPersist) && !g.Enabled(leaseCheckpoint) {
		return errors.New("--feature-gates: LeaseCheckpointPersist needs LeaseCheckpoint: switch both on")
	}
	return nil
}
