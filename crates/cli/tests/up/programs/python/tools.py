import ctypes, errno, fcntl, os, select, signal, socket, sys, threading

far, nobody = ("10.9.0.1", 5000), ("10.9.0.1", 5999)
libc = ctypes.CDLL(None, use_errno=True)

def caught(call):
    try:
        return call()
    except OSError as error:
        return error.errno

class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("length", ctypes.c_size_t)]

class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("name_length", ctypes.c_uint32), ("parts", ctypes.POINTER(Part)),
                ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int), ("done", ctypes.c_uint)]

def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result

def connected(*options):
    """Connects a socket with these options to the program's `listener` at `far`. Returns both ends."""
    s = socket.socket()
    for option in options:
        s.setsockopt(*option)
    s.connect(far)
    return s, listener.accept()[0]
