"""PyTorch's compiled functions that some libraries call by this name: the recurrent layers."""

from undertow.nn.rnn.functional import gru as gru
from undertow.nn.rnn.functional import gru_cell as gru_cell
from undertow.nn.rnn.functional import lstm as lstm
from undertow.nn.rnn.functional import lstm_cell as lstm_cell
from undertow.nn.rnn.functional import rnn_relu as rnn_relu
from undertow.nn.rnn.functional import rnn_relu_cell as rnn_relu_cell
from undertow.nn.rnn.functional import rnn_tanh as rnn_tanh
from undertow.nn.rnn.functional import rnn_tanh_cell as rnn_tanh_cell
