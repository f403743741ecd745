# BERT on Paddle in a container; `bash scripts/docker/build.sh` chooses the arguments.
#
#   BASE                                                PADDLE   for
#   nvcr.io/nvidia/paddlepaddle:24.12-py3 (default)     base     NVIDIA GPUs up to Hopper: the image's own Paddle, if it is 2.6 to 3.1
#   nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04         gpu      Pascal to Ampere: PyPI's wheel, on a plain CUDA
#   nvidia/cuda:12.6.3-base-ubuntu24.04                 cu126    Hopper: Paddle 3.1 of Paddle's own index, which brings CUDA
#   nvidia/cuda:12.9.1-base-ubuntu24.04                 cu129    Blackwell: the same
#   python:3.11-slim-bookworm                           cpu      no GPU
#
# `build.sh serve` builds the target `serve` instead: the HTTP server on a CPU, without training's packages.
# NVIDIA's release notes that could be read end at 24.05, which has Ubuntu 22.04 with Python 3.10, as all before have an
# older one: too old for us. What 24.12 has was not seen, so the build examines its Python and the version of its Paddle, and
# ends in a sentence that names `cuda` and `hopper` if they do not fit. These two install the Paddle that was tested (2.6.2) or
# the same version of the wheel that was (3.1.1), and depend on CUDA alone. No image was pulled or built here.
# NAME@sha256:DIGEST in place of a tag fixes an image for ever: BERT_BASE=NAME@sha256:... of build.sh. None is written here:
# the registries, which tell the digests, were out of reach when the tags were tried.
ARG BASE=nvcr.io/nvidia/paddlepaddle:24.12-py3
ARG SERVE_BASE=python:3.11-slim-bookworm

FROM ${SERVE_BASE} AS serve
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
ENV PYTHONUTF8=1 PYTHONDONTWRITEBYTECODE=1 HOME=/home/bert
COPY scripts/docker/install_python.sh /opt/bert/
RUN bash /opt/bert/install_python.sh cpu /opt/venv
ENV PATH=/opt/venv/bin:${PATH}
COPY pyproject.toml uv.lock /opt/bert/
COPY scripts/setup.sh scripts/packages.sh /opt/bert/scripts/
RUN . /opt/bert/scripts/setup.sh \
    && make_environment /opt/venv packages install_packages /opt/venv/bin/python inference paddle serve \
    && rm -rf "${UV_HOME}"
RUN useradd --create-home --uid 10001 bert && chmod 1777 /home/bert
WORKDIR /workspace/bert
COPY LICENSE program.py ./
COPY data data
COPY bert bert
USER 10001
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["python", "-m", "bert.serving", "--host", "0.0.0.0"]
CMD ["/model"]

FROM ${BASE} AS train
ARG PADDLE=base

SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
USER 0

# Steps that change least come first, so that a change of later files does not build them again.
COPY scripts/docker/install_python.sh /opt/bert/
RUN bash /opt/bert/install_python.sh "${PADDLE}" /opt/venv

# PIP_CONSTRAINT: NVIDIA's images pin packages of their own, which our lock would contradict. A container does not keep what
# a start compiles, so all is compiled here.
ENV PATH=/opt/venv/bin:${PATH} PIP_CONSTRAINT= PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
COPY pyproject.toml uv.lock /opt/bert/
COPY scripts/setup.sh scripts/packages.sh /opt/bert/scripts/
RUN case "${PADDLE}" in base) own="" ;; gpu) own=gpu ;; cu*) own=paddle3-gpu ;; *) own=paddle ;; esac \
    && . /opt/bert/scripts/setup.sh && export BERT_CUDA="${PADDLE}" \
    && make_environment /opt/venv packages install_packages /opt/venv/bin/python train dask ${own} \
    && rm -rf "${UV_HOME}"

# Any user may run it. launch.sh passes the caller's id, so that results belong to the caller; the default is not root.
RUN useradd --create-home --uid 10001 bert && chmod 1777 /home/bert \
    && install --directory --mode=1777 /workspace/bert/results /data \
    && ln -s /workspace/bert/results /results
WORKDIR /workspace/bert
COPY LICENSE README.md pyproject.toml uv.lock run.sub *.py ./
COPY scripts scripts
COPY docs docs
COPY data data
COPY bert bert
RUN ln -s /opt/venv .venv

# The scripts use this interpreter as it is, instead of making an environment; the documents call it .venv/bin/python.
ENV BERT_PYTHON=/opt/venv/bin/python BERT_PREP_WORKING_DIR=/data PYTHONUTF8=1 PYTHONDONTWRITEBYTECODE=1 HOME=/home/bert
USER 10001
ENTRYPOINT ["/workspace/bert/scripts/docker/entrypoint.sh"]
CMD ["python", "-m", "bert.doctor"]
