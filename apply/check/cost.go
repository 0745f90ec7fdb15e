package check

import "github.com/coordd/coordd/api/rpcpb"

const (
	// LeaseGrantCost is what a lease costs against the quota, in bytes.
	LeaseGrantCost = 64
	// putOverhead is what a put costs besides its key and value.
	putOverhead = 256
)

// PutCost is what a put costs against the quota, in bytes.
func PutCost(r *rpcpb.PutRequest) int64 {
	return putOverhead + int64(len(r.GetKey())) + int64(len(r.GetValue()))
}

// TxnCost is what a transaction costs against the quota, in bytes: the cost of the dearer branch,
// where a branch costs what its puts and nested transactions cost. Reads and deletions are free.
func TxnCost(r *rpcpb.TxnRequest) int64 {
	return max(branchCost(r.GetSuccess()), branchCost(r.GetFailure()))
}

func branchCost(ops []*rpcpb.RequestOp) int64 {
	var sum int64
	for _, op := range ops {
		switch {
		case op.GetRequestPut() != nil:
			sum += PutCost(op.GetRequestPut())
		case op.GetRequestTxn() != nil:
			sum += TxnCost(op.GetRequestTxn())
		}
	}
	return sum
}
