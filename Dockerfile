# The image of one service, or of osmctl: docker build --build-arg SERVICE=osp-controller .
#
# The image is built from scratch, because it holds one static program that reads no other file. The CA certificates come with the
# kubeconfig or with the pod's ServiceAccount. Only the program itself ever needs security updates. A distroless base would add time zones,
# CA roots and a passwd file, which the program does not read.
#
# `cargo xtask image` builds the files itself, and only the last stage with buildah. Its images are for your own
# registry, not for a release: they have no THIRD-PARTY.txt.

FROM docker.io/library/rust:1.95-bookworm AS build
# Scanners, and BuildKit when it writes an SBOM, find the crates in programs that cargo-auditable has built.
RUN cargo install --locked cargo-auditable --version =0.7.7
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo xtask image --contents /contents && \
    for folder in /contents/*; do \
      readelf --sections --wide "$folder/root/service" | grep -q '\.dep-v0' && \
      .ci/third-party "$(basename "$folder")" >"$folder/root/licenses/THIRD-PARTY.txt" || exit 1; \
    done

FROM scratch AS contents
COPY --from=build /contents/ /

FROM scratch
ARG SERVICE
ARG VERSION
ARG REVISION
ARG SOURCE
LABEL org.opencontainers.image.title=$SERVICE \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.source=$SOURCE \
      org.opencontainers.image.licenses=Apache-2.0
COPY --from=contents /$SERVICE/root/ /
USER 65532:65532
EXPOSE 8080
# The path is the same in all images, because without a shell the entry point can't contain the name of the service.
ENTRYPOINT ["/service"]
