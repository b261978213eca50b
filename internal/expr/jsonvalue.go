package expr

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// celValue is a document as cel-go wants it, made for the first expression that is interpreted.
type celValue struct {
	made  bool
	value ref.Val
}

func (d *document) value() ref.Val {
	if !d.cel.made {
		d.cel = celValue{made: true, value: types.NullValue}
		if len(d.nodes) > 0 {
			d.cel.value = d.convert(0)
		}
	}
	return d.cel.value
}

// convert recurses MaxDepth deep at most.
func (d *document) convert(at uint32) ref.Val {
	n := &d.nodes[at]
	switch n.kind {
	case nodeFalse:
		return types.False
	case nodeTrue:
		return types.True
	case nodeNumber:
		return types.Double(d.number(n))
	case nodeText, nodeEscapedText:
		return types.String(d.string(n))
	case nodeArray:
		var list []ref.Val
		for i := at + 1; i < n.next; i = d.nodes[i].next {
			list = append(list, d.convert(i))
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list)
	case nodeObject:
		members := map[ref.Val]ref.Val{}
		for i := at + 1; i < n.next; i = d.nodes[i+1].next {
			members[types.String(d.string(&d.nodes[i]))] = d.convert(i + 1)
		}
		return types.NewRefValMap(types.DefaultTypeAdapter, members)
	}
	return types.NullValue
}
