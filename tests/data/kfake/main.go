// Command kfake starts franz-go's fake Kafka cluster, whose brokers are of another make than Kafka.
//
// It listens on free ports of loopback, prints the brokers' addresses in one line once they accept
// connections, and ends when its standard input closes. All brokers share one thread. With
// -records-per-s, that thread takes a stated time for each record that it is sent: a planted limit.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// recordCountAt is where the number of records stands in a record batch of format 2.
const recordCountAt = 57

func main() {
	brokers := flag.Int("brokers", 3, "number of brokers")
	recordsPerS := flag.Float64("records-per-s", 0, "most records per second of all brokers; 0 for no limit")
	flag.Parse()

	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(*brokers),
		// Records are in memory, and are dropped beyond retention.bytes only when the cleaner runs.
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "1000"}),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *recordsPerS > 0 {
		limit(cluster, *recordsPerS)
	}
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	io.Copy(io.Discard, os.Stdin)
	cluster.Close()
}

// limit makes the thread that serves all requests busy for 1/recordsPerS seconds with each record.
func limit(cluster *kfake.Cluster, recordsPerS float64) {
	var freeAt time.Time
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		// The times add up from the intended ends, so that a late wake-up costs nothing.
		if now := time.Now(); freeAt.Before(now.Add(-slack)) {
			freeAt = now
		}
		freeAt = freeAt.Add(time.Duration(float64(records(request)) / recordsPerS * 1e9))
		time.Sleep(time.Until(freeAt))
		return nil, nil, false
	})
}

// slack is how late a wake-up may be and still be made up for.
const slack = 50 * time.Millisecond

// records returns how many records a produce request carries.
func records(request kmsg.Request) int {
	count := 0
	for _, topic := range request.(*kmsg.ProduceRequest).Topics {
		for _, partition := range topic.Partitions {
			if batch := partition.Records; len(batch) >= recordCountAt+4 {
				count += int(binary.BigEndian.Uint32(batch[recordCountAt:]))
			}
		}
	}
	return count
}
