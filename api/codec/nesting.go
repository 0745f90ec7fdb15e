package codec

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/rpcpb"
)

// MaxNesting is the greatest number of transactions within each other that is decoded. It equals
// the bound of the protobuf library, which is 10000 messages: a transaction and the operation that
// holds it are two.
const MaxNesting = 5000

// minNested is the least number of bytes a transaction adds around the one in it: a tag and a
// length for each of two messages.
const minNested = 4

// The numbers of the fields that hold transactions in transactions.
const (
	txnSuccess   = 2 // of TxnRequest
	txnFailure   = 3 // of TxnRequest
	txnResponses = 3 // of TxnResponse
	opTxn        = 4 // of RequestOp and of ResponseOp
)

// errNesting says that a transaction is nested too deeply.
var errNesting = errors.New("codec: transaction nested more than 5000 levels deep")

// checkNesting refuses the encoding of a transaction, or of its answer, that is nested too deeply
// for decoders that recurse. It also refuses what does not parse on the way: the generated decoders
// are more lenient about tags, so what this cannot read they might read as one level more.
func checkNesting(v any, data []byte) error {
	if len(data) < MaxNesting*minNested {
		return nil // too short to be nested that deeply
	}
	switch v.(type) {
	case *rpcpb.TxnRequest:
		return walkTxn(data, txnSuccess, txnFailure, MaxNesting)
	case *rpcpb.TxnResponse:
		return walkTxn(data, txnResponses, txnResponses, MaxNesting)
	}
	return nil
}

// walkTxn looks at all transactions within the encoded one, whose operations are in the fields list1
// and list2. left is how many levels are allowed, this one counted.
func walkTxn(txn []byte, list1, list2 protowire.Number, left int) error {
	if left == 0 {
		return errNesting
	}
	return eachEmbedded(txn, func(n protowire.Number, op []byte) error {
		if n != list1 && n != list2 {
			return nil
		}
		return eachEmbedded(op, func(n protowire.Number, inner []byte) error {
			if n != opTxn {
				return nil
			}
			return walkTxn(inner, list1, list2, left-1)
		})
	})
}

// eachEmbedded calls visit for every length-delimited field of the message, until one fails.
func eachEmbedded(msg []byte, visit func(n protowire.Number, field []byte) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return malformed(n)
		}
		size := protowire.ConsumeFieldValue(num, typ, msg[n:])
		if size < 0 {
			return malformed(size)
		}
		if typ == protowire.BytesType {
			field, _ := protowire.ConsumeBytes(msg[n:])
			if err := visit(num, field); err != nil {
				return err
			}
		}
		msg = msg[n+size:]
	}
	return nil
}

// malformed gives the error for a negative length of package protowire.
func malformed(n int) error {
	return fmt.Errorf("codec: malformed transaction: %w", protowire.ParseError(n))
}
