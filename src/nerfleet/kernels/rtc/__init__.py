"""CUDA C++ at run time: compile to cubin, cache on disk, load, launch on torch's stream. Not one word of NeRF in here.

Importing this package imports nothing of CUDA; compiling needs no GPU.
"""
