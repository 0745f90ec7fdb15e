package check

import (
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
)

// Range checks a read: [errs.ErrEmptyKey], [errs.ErrInvalidSortOption] or nil.
func Range(r *rpcpb.RangeRequest) error {
	if len(r.GetKey()) == 0 {
		return errs.ErrEmptyKey
	}
	if _, known := rpcpb.RangeRequest_SortOrder_name[int32(r.GetSortOrder())]; !known {
		return errs.ErrInvalidSortOption
	}
	if _, known := rpcpb.RangeRequest_SortTarget_name[int32(r.GetSortTarget())]; !known {
		return errs.ErrInvalidSortOption
	}
	return nil
}

// Put checks a put: [errs.ErrEmptyKey], [errs.ErrValueProvided], [errs.ErrLeaseProvided] or nil.
func Put(r *rpcpb.PutRequest) error {
	switch {
	case len(r.GetKey()) == 0:
		return errs.ErrEmptyKey
	case r.GetIgnoreValue() && len(r.GetValue()) != 0:
		return errs.ErrValueProvided
	case r.GetIgnoreLease() && r.GetLease() != 0:
		return errs.ErrLeaseProvided
	}
	return nil
}

// DeleteRange checks a deletion: [errs.ErrEmptyKey] or nil.
func DeleteRange(r *rpcpb.DeleteRangeRequest) error {
	if len(r.GetKey()) == 0 {
		return errs.ErrEmptyKey
	}
	return nil
}

// Txn checks a transaction with its nested ones. maxOps bounds the longest of the lists of
// compares, success and failure operations; a nested transaction may have as many as its parent
// could have had more. Besides the errors of the operations it returns [errs.ErrTooManyOps],
// [errs.ErrEmptyKey] for a compare without key, [errs.ErrKeyNotFound] for an operation that is
// none, and [errs.ErrDuplicateKey], see the package comment.
func Txn(r *rpcpb.TxnRequest, maxOps int) error {
	if err := shape(r, maxOps); err != nil {
		return err
	}
	for _, branch := range [][]*rpcpb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		if _, err := writesOf(branch); err != nil {
			return err
		}
	}
	return nil
}

// shape checks everything about a transaction but double writes.
func shape(r *rpcpb.TxnRequest, maxOps int) error {
	longest := max(len(r.GetCompare()), len(r.GetSuccess()), len(r.GetFailure()))
	if longest > maxOps {
		return errs.ErrTooManyOps
	}
	for _, c := range r.GetCompare() {
		if len(c.GetKey()) == 0 {
			return errs.ErrEmptyKey
		}
	}
	for _, branch := range [][]*rpcpb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range branch {
			if err := opShape(op, maxOps-longest); err != nil {
				return err
			}
		}
	}
	return nil
}

// opShape checks one operation; nestedOps is the allowance of a nested transaction.
func opShape(op *rpcpb.RequestOp, nestedOps int) error {
	switch {
	case op.GetRequestRange() != nil:
		return Range(op.GetRequestRange())
	case op.GetRequestPut() != nil:
		return Put(op.GetRequestPut())
	case op.GetRequestDeleteRange() != nil:
		return DeleteRange(op.GetRequestDeleteRange())
	case op.GetRequestTxn() != nil:
		return shape(op.GetRequestTxn(), nestedOps)
	default:
		return errs.ErrKeyNotFound
	}
}

// ReadOnly reports whether every operation of both branches is a read, so that the transaction
// need not go through the log. A nested transaction makes it a writing one, whatever is in it.
func ReadOnly(r *rpcpb.TxnRequest) bool {
	return everyOp(r, func(op *rpcpb.RequestOp) bool { return op.GetRequestRange() != nil })
}

// Serializable reports whether a read-only transaction may be answered from local state alone:
// every read in both branches says so. One without operations is serializable.
func Serializable(r *rpcpb.TxnRequest) bool {
	return everyOp(r, func(op *rpcpb.RequestOp) bool {
		read := op.GetRequestRange()
		return read != nil && read.GetSerializable()
	})
}

func everyOp(r *rpcpb.TxnRequest, holds func(*rpcpb.RequestOp) bool) bool {
	for _, branch := range [][]*rpcpb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range branch {
			if !holds(op) {
				return false
			}
		}
	}
	return true
}
