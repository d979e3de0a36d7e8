# Generated code is committed, so that a build needs no protoc; `make proto` makes
# it anew after a change of a .proto, and `make proto-check` fails when it is out of
# date. The plugins are pinned in tools/go.mod.
.PHONY: proto proto-check proto-packages

proto: bin/protoc-gen-go bin/protoc-gen-go-grpc proto-packages
	proto/generate .

# Into a directory of its own, and compared.
proto-check: bin/protoc-gen-go bin/protoc-gen-go-grpc proto-packages
	proto/check

proto-packages:
	$(ROOT) proto/install-packages

bin/protoc-gen-go bin/protoc-gen-go-grpc: tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../bin/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
