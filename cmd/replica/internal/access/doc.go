// Package access says who may do what with a replica's HTTP API.
//
// A bearer token is a random secret. What a token gives stands in a file of
// entries, one a line, which holds no token, only the SHA-256 of each:
//
//	# SHA-256 of the token   role       name       tenants
//	5f16…                    operator   ops
//	90ab…                    peer       replicas
//	c3d4…                    tenant     shop       acme/t-860cead4b9aab8577b5f03fdeff1ead1
//
// There are three roles. An [Operator] may do everything. A [Tenant]'s token works
// on the data of the tenants that its entry names, and on nothing else. A [Peer]'s
// token gives nothing by itself: it shows that a request which says that it was
// forwarded was forwarded by a replica. The rights of such a request are those of
// the client's own token, which travels with it and is judged at both replicas.
package access
