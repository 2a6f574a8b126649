# One static binary and the certificates it needs to speak TLS upstream. Nothing is written: run it with --read-only.
#
#   docker build -t weir . && docker run --read-only -p 8080:8080 weir --upstream http://host.docker.internal:9000

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /weir .

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /weir /weir
USER 65532:65532
EXPOSE 8080 8082
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["/weir", "healthcheck"]
ENTRYPOINT ["/weir"]
