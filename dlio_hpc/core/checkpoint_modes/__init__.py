"""Ways to write and read the files of a checkpoint, one module for each value of `checkpoint.mode`.

Each module has the same functions. start() imports the framework and returns the data that write() and read() need;
stop() releases them. names() returns the names of the files that a rank reads, relative to the output folder. write()
and read() transfer the files of a rank and return the times and the bytes.
"""
